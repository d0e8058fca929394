//! How full a queue is, and whether it is closed, for every kind of handle.

/// Numbers and closing, for a handle with the field `typed`.
macro_rules! status {
    ($handle:ident) => {
        impl<T> $handle<T> {
            /// How many messages fit.
            #[doc(alias = "maxsize")]
            #[must_use]
            pub fn capacity_items(&self) -> usize {
                self.typed.ring().capacity_items()
            }

            /// About how many messages are in the queue; others may be putting and getting. Leased ones that came back count
            /// too, so that it may be more than its capacity.
            #[doc(alias = "qsize")]
            #[must_use]
            pub fn len(&self) -> usize {
                self.typed.ring().len()
            }

            /// Whether the queue seems empty.
            #[doc(alias = "empty")]
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Whether the queue seems full: whether a put would wait. Leased messages take no room.
            #[doc(alias = "full")]
            #[must_use]
            pub fn is_full(&self) -> bool {
                self.typed.ring().is_full()
            }

            /// Refuses every further put, in every process. What is in the queue can still be got; after that `get` returns
            /// [`GetError::Closed`](crate::GetError::Closed), to every receiver: no sentinels are needed.
            pub fn close(&self) {
                self.typed.ring().close();
            }

            /// Whether the queue was closed.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.typed.ring().is_closed()
            }
        }

        impl<T> std::fmt::Debug for $handle<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($handle))
                    .field("len", &self.len())
                    .field("capacity_items", &self.capacity_items())
                    .finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use status;
