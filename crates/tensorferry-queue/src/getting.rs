//! What a queue and a receiver have in common.

/// Getting, leasing and iterating, for a handle with the field `typed`.
macro_rules! getting {
    ($handle:ident) => {
        impl<T: serde::Serialize + serde::de::DeserializeOwned> $handle<T> {
            /// Gets a value; waits while there is none.
            ///
            /// # Errors
            /// [`GetError`](crate::GetError): closed, or everybody else who could put is gone, and drained; or a message
            /// that cannot be decoded.
            pub fn get(&self) -> Result<T, crate::GetError> {
                self.typed.get(tensorferry_storage::Consumers::Multi, tensorferry_storage::Deadline::Never)
            }

            /// As [`get`](Self::get), waiting for at most `timeout`.
            ///
            /// # Errors
            /// As [`get`](Self::get), or [`GetError::Empty`](crate::GetError::Empty).
            pub fn get_timeout(&self, timeout: std::time::Duration) -> Result<T, crate::GetError> {
                self.typed.get(tensorferry_storage::Consumers::Multi, crate::typed::within(timeout))
            }

            /// As [`get`](Self::get), without waiting.
            ///
            /// # Errors
            /// As [`get`](Self::get), or [`GetError::Empty`](crate::GetError::Empty).
            pub fn get_nowait(&self) -> Result<T, crate::GetError> {
                self.typed.get(tensorferry_storage::Consumers::Multi, tensorferry_storage::Deadline::Now)
            }

            /// Leases a value: gets it so that it comes back if this process dies before
            /// [`Lease::ack`](crate::Lease::ack). What came back already is the first in line. Waits while there is nothing,
            /// and while every lease is out and other processes have some of them.
            ///
            /// # Errors
            /// As [`get`](Self::get); [`GetError::NoLeases`](crate::GetError::NoLeases) when the queue was made without,
            /// [`GetError::AllLeased`](crate::GetError::AllLeased) when this process has every lease already.
            pub fn get_leased(&self) -> Result<crate::Lease<T>, crate::GetError> {
                self.typed.get_leased(tensorferry_storage::Deadline::Never)
            }

            /// As [`get_leased`](Self::get_leased), waiting for at most `timeout`.
            ///
            /// # Errors
            /// As [`get_leased`](Self::get_leased), or [`GetError::Empty`](crate::GetError::Empty).
            pub fn get_leased_timeout(
                &self,
                timeout: std::time::Duration,
            ) -> Result<crate::Lease<T>, crate::GetError> {
                self.typed.get_leased(crate::typed::within(timeout))
            }

            /// As [`get_leased`](Self::get_leased), without waiting.
            ///
            /// # Errors
            /// As [`get_leased`](Self::get_leased), or [`GetError::Empty`](crate::GetError::Empty).
            pub fn get_leased_nowait(&self) -> Result<crate::Lease<T>, crate::GetError> {
                self.typed.get_leased(tensorferry_storage::Deadline::Now)
            }

            /// Gets values until nothing more can come. What ended it is in [`Iter::end`](crate::Iter::end).
            #[must_use]
            pub fn iter(&self) -> crate::Iter<'_, T> {
                crate::Iter::many(&self.typed)
            }
        }

        impl<'a, T: serde::Serialize + serde::de::DeserializeOwned> IntoIterator for &'a $handle<T> {
            type Item = T;
            type IntoIter = crate::Iter<'a, T>;

            fn into_iter(self) -> crate::Iter<'a, T> {
                self.iter()
            }
        }
    };
}

pub(crate) use getting;
