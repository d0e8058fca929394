//! The methods that a queue and a receiver have in common.

/// Getting, leasing and iterating, for a handle with the field `typed`.
macro_rules! getting {
    ($handle:ident) => {
        impl<T: serde::Serialize + serde::de::DeserializeOwned> $handle<T> {
            /// Gets a value; waits while there is none.
            ///
            /// ```
            /// use tensorferry_queue::{GetError, channel};
            ///
            /// let (sender, receiver) = channel(2)?;
            /// sender.put(7)?;
            /// drop(sender);
            /// assert_eq!(receiver.get()?, 7);
            /// assert!(matches!(receiver.get(), Err(GetError::Disconnected)));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Blocking
            /// Blocks while the queue is empty. A put wakes the call, and so do [`close`](Self::close), the
            /// end or death of the other processes that can send, and a leased value that comes back. The
            /// call polls for a moment before it sleeps: see [`set_busy_poll`](Self::set_busy_poll).
            ///
            /// Reading what was taken does not block, but for sealed tensors and tensors on a device, whose
            /// memory has a descriptor of its own: the first time that this process gets one, it asks the
            /// process that made the domain for it. Where that process is stopped, 20 s pass before the call
            /// ends with [`Decode`](crate::GetError::Decode).
            ///
            /// # Errors
            /// - [`Closed`](crate::GetError::Closed): the queue is closed, and everything in it has been got.
            /// - [`Disconnected`](crate::GetError::Disconnected): every other process that could send let go
            ///   of its end, and everything that was put has been got.
            /// - [`PeerDied`](crate::GetError::PeerDied): as `Disconnected`, and at least one of them died.
            /// - [`Decode`](crate::GetError::Decode): the message that was taken cannot be decoded.
            /// - [`Other`](crate::GetError::Other): the ring failed in a way that this version of the crate
            ///   does not know.
            #[doc(alias = "recv")]
            pub fn get(&self) -> Result<T, crate::GetError> {
                self.typed.get(tensorferry_storage::Consumers::Multi, tensorferry_storage::Deadline::Never)
            }

            /// As [`get`](Self::get), waiting for at most `timeout`.
            ///
            /// # Blocking
            /// As [`get`](Self::get), for at most `timeout`. Reading a value that came in time is not
            /// limited by it.
            ///
            /// # Errors
            /// As [`get`](Self::get), and [`Empty`](crate::GetError::Empty) when no value came in time.
            pub fn get_timeout(&self, timeout: std::time::Duration) -> Result<T, crate::GetError> {
                self.typed.get(
                    tensorferry_storage::Consumers::Multi,
                    tensorferry_storage::Deadline::within(timeout),
                )
            }

            /// As [`get`](Self::get), without waiting.
            ///
            /// # Blocking
            /// Never waits for a value. Reading the one that is there may block, as for [`get`](Self::get).
            ///
            /// # Errors
            /// As [`get`](Self::get), and [`Empty`](crate::GetError::Empty) when there is no value.
            #[doc(alias = "try_get")]
            #[doc(alias = "try_recv")]
            pub fn get_nowait(&self) -> Result<T, crate::GetError> {
                self.typed.get(tensorferry_storage::Consumers::Multi, tensorferry_storage::Deadline::Now)
            }

            /// Leases a value: if this process dies before [`Lease::ack`](crate::Lease::ack), the value comes
            /// back to the queue. A value that came back is delivered before all others.
            ///
            /// ```
            /// use tensorferry_queue::Queue;
            ///
            /// let jobs = Queue::with_leases(4, 1)?;
            /// jobs.put(7)?;
            /// let job = jobs.get_leased()?;
            /// assert_eq!(*job, 7);
            /// job.ack()?;
            /// assert!(jobs.get_leased_nowait().unwrap_err().is_empty());
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Blocking
            /// Blocks while the queue is empty, and while every lease is in use and other processes hold some
            /// of them. Everything that wakes [`get`](Self::get) wakes the call, and so does a lease that
            /// ends.
            ///
            /// # Errors
            /// As [`get`](Self::get), and
            ///
            /// - [`NoLeases`](crate::GetError::NoLeases): the queue was made without leases.
            /// - [`AllLeased`](crate::GetError::AllLeased): this process holds every lease of the queue
            ///   already.
            pub fn get_leased(&self) -> Result<crate::Lease<T>, crate::GetError> {
                self.typed.get_leased(tensorferry_storage::Deadline::Never)
            }

            /// As [`get_leased`](Self::get_leased), waiting for at most `timeout`.
            ///
            /// # Blocking
            /// As [`get_leased`](Self::get_leased), for at most `timeout`. Reading a value that came in time
            /// is not limited by it.
            ///
            /// # Errors
            /// As [`get_leased`](Self::get_leased), and [`Empty`](crate::GetError::Empty) when no value could
            /// be leased in time.
            pub fn get_leased_timeout(
                &self,
                timeout: std::time::Duration,
            ) -> Result<crate::Lease<T>, crate::GetError> {
                self.typed.get_leased(tensorferry_storage::Deadline::within(timeout))
            }

            /// As [`get_leased`](Self::get_leased), without waiting.
            ///
            /// # Blocking
            /// Never waits for a value or for a lease. Reading the value may block, as for
            /// [`get`](Self::get); where its memory cannot be had, it goes back to the queue.
            ///
            /// # Errors
            /// As [`get_leased`](Self::get_leased), and [`Empty`](crate::GetError::Empty) when no value can
            /// be leased now.
            #[doc(alias = "try_get_leased")]
            pub fn get_leased_nowait(&self) -> Result<crate::Lease<T>, crate::GetError> {
                self.typed.get_leased(tensorferry_storage::Deadline::Now)
            }

            /// Leases values until the first error. [`LeaseIter::finish`](crate::LeaseIter::finish) tells a
            /// normal end from a failure.
            ///
            /// # Blocking
            /// Each step blocks as [`get_leased`](Self::get_leased) does.
            #[must_use]
            pub fn iter_leased(&self) -> crate::LeaseIter<'_, T> {
                crate::LeaseIter::new(&self.typed)
            }

            /// For [`wait`](crate::wait): a source that has something when
            /// [`get_leased_nowait`](Self::get_leased_nowait) would not say `Empty`.
            ///
            /// ```
            /// # use tensorferry_queue::{Queue, wait};
            /// let (control, jobs) = (Queue::<u8>::new(1)?, Queue::with_leases(4, 1)?);
            /// jobs.put(7)?;
            /// assert_eq!(wait(&[&control, &jobs.leases()])?, [1]);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// To lease one value after the other, iterate over [`iter_leased`](Self::iter_leased).
            #[must_use]
            pub fn leases(&self) -> crate::wait::Leases<'_> {
                crate::wait::Leases(self.typed.ring())
            }

            /// Gets values until the first error. [`Iter::finish`](crate::Iter::finish) tells a normal end
            /// from a failure, and [`Iter::end`](crate::Iter::end) has the error itself.
            ///
            /// # Blocking
            /// Each step blocks as [`get`](Self::get) does.
            #[must_use]
            pub fn iter(&self) -> crate::Iter<'_, T> {
                crate::Iter::many(&self.typed)
            }
        }

        impl<T> crate::wait::sealed::Sealed for $handle<T> {
            fn waits_for(&self) -> crate::wait::sealed::WaitsFor<'_> {
                crate::wait::sealed::WaitsFor::Ring(self.typed.ring(), tensorferry_storage::Awaited::Message)
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
