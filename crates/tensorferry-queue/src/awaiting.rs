//! The methods by which tasks wait.

/// Getting and leasing, for a handle with the field `typed`.
macro_rules! getting_async {
    ($handle:ident) => {
        impl<T: serde::Serialize + serde::de::DeserializeOwned> $handle<T> {
            /// As [`get`](Self::get), for a task: waits without keeping a thread.
            ///
            /// ```
            /// # use tensorferry_queue::channel;
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// let (sender, receiver) = channel(2)?;
            /// # let sending =
            /// tokio::spawn(async move { sender.put_async(7).await });
            /// assert_eq!(receiver.get_async().await?, 7);
            /// # sending.await??;
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// Works in every runtime. One thread of the process waits for all tasks, which costs a message
            /// that was waited for two wake-ups instead of one. A future that is dropped has taken nothing.
            ///
            /// # Errors
            /// As [`get`](Self::get), and [`NoThread`](crate::GetError::NoThread).
            pub async fn get_async(&self) -> Result<T, crate::GetError> {
                loop {
                    match self.get_nowait() {
                        Err(crate::GetError::Empty) => {}
                        outcome => return outcome,
                    }
                    let ready = self.typed.ready(tensorferry_storage::Awaited::Message).await;
                    ready.map_err(crate::GetError::NoThread)?;
                }
            }

            /// As [`get_leased`](Self::get_leased), for a task: see [`get_async`](Self::get_async).
            ///
            /// Leases belong to the process: all of its tasks together have those that the queue was made
            /// with, and one more is [`AllLeased`](crate::GetError::AllLeased).
            ///
            /// # Errors
            /// As [`get_leased`](Self::get_leased), and [`NoThread`](crate::GetError::NoThread).
            pub async fn get_leased_async(&self) -> Result<crate::Lease<T>, crate::GetError> {
                loop {
                    match self.get_leased_nowait() {
                        Err(crate::GetError::Empty) => {}
                        outcome => return outcome,
                    }
                    let ready = self.typed.ready(tensorferry_storage::Awaited::Lease).await;
                    ready.map_err(crate::GetError::NoThread)?;
                }
            }

            /// A descriptor that is readable when there is something to get.
            ///
            /// # Errors
            /// EMFILE when the process has no descriptor left; the system's when no thread could be started.
            pub fn ready_fd(&self) -> std::io::Result<crate::ReadyFd> {
                self.typed.ready_fd(tensorferry_storage::Awaited::Message)
            }

            /// A descriptor that is readable when a value can be leased: when
            /// [`get_leased_nowait`](Self::get_leased_nowait) would not say `Empty`. While this process has
            /// all leases of the queue, it would say [`AllLeased`](crate::GetError::AllLeased), so the
            /// descriptor is readable: an event loop leaves it alone until one of them has ended, and rearms
            /// it then.
            ///
            /// # Errors
            /// As [`ready_fd`](Self::ready_fd).
            pub fn leases_ready_fd(&self) -> std::io::Result<crate::ReadyFd> {
                self.typed.ready_fd(tensorferry_storage::Awaited::Lease)
            }
        }
    };
}

/// Putting, for a handle with the field `typed`.
macro_rules! putting_async {
    ($handle:ident) => {
        impl<T: serde::Serialize + serde::de::DeserializeOwned> $handle<T> {
            /// As [`put`](Self::put), for a task: waits for room without keeping a thread. The value is
            /// serialised once there is room, and again when somebody else was faster. A future that is
            /// dropped before it is ready has put nothing, and drops the value.
            ///
            /// # Errors
            /// As [`put`](Self::put), and [`NoThread`](crate::PutErrorKind::NoThread).
            pub async fn put_async(&self, value: T) -> Result<(), crate::PutError<T>> {
                let mut value = value;
                loop {
                    if let Err(error) = self.typed.ready(tensorferry_storage::Awaited::Room).await {
                        return Err(crate::PutError::new(value, crate::PutErrorKind::NoThread(error)));
                    }
                    match self.put_nowait(value) {
                        Err(refused) if refused.is_full() => value = refused.value,
                        outcome => return outcome,
                    }
                }
            }

            /// A descriptor that is readable when there is room: when `put_nowait` would not say
            /// [`Full`](crate::PutErrorKind::Full). While it exists, this process counts as one that can
            /// send.
            ///
            /// # Errors
            /// EMFILE when the process has no descriptor left; the system's when no thread could be started.
            pub fn room_ready_fd(&self) -> std::io::Result<crate::ReadyFd> {
                self.typed.ready_fd(tensorferry_storage::Awaited::Room)
            }

            /// For [`wait`](crate::wait): a source that has something when `put_nowait` would not say
            /// [`Full`](crate::PutErrorKind::Full).
            ///
            /// ```
            /// # use tensorferry_queue::{Source, channel, wait};
            /// let ((to_one, one), (to_other, _other)) = (channel(1)?, channel(1)?);
            /// to_one.put(1)?;
            /// assert_eq!(wait(&[&to_one.room(), &to_other.room()])?, [1]);
            /// assert_eq!(wait(&[&to_one.room(), &one])?, [1]);
            /// # to_other.put(1)?;
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use]
            pub fn room(&self) -> crate::Room<'_> {
                crate::wait::Room(self.typed.ring())
            }
        }
    };
}

pub(crate) use {getting_async, putting_async};
