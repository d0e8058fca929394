//! How full a queue is, and whether it is closed, for every kind of handle.

/// Numbers and closing, for a handle with the field `typed`.
macro_rules! status {
    ($handle:ident) => {
        impl<T> $handle<T> {
            /// Where the queue lies in the domain: equal for all handles on it, in all processes, and the
            /// `id` under which a snapshot has it (`tensorferry-inspect`).
            #[must_use]
            pub fn id(&self) -> tensorferry_storage::BlockId {
                self.typed.ring().id()
            }

            /// The number of messages that the queue has room for.
            #[doc(alias = "maxsize")]
            #[must_use]
            pub fn capacity_items(&self) -> usize {
                self.typed.ring().capacity_items()
            }

            /// The number of messages in the queue. It is approximate while other threads or processes put
            /// and get.
            ///
            /// Leased messages that came back count too, so the number can exceed the capacity.
            #[doc(alias = "qsize")]
            #[must_use]
            pub fn len(&self) -> usize {
                self.typed.ring().len()
            }

            /// Whether the queue seems empty. Approximate, as [`len`](Self::len).
            #[doc(alias = "empty")]
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Whether the queue seems full, so that a put would wait. Leased messages take no room.
            #[doc(alias = "full")]
            #[must_use]
            pub fn is_full(&self) -> bool {
                self.typed.ring().is_full()
            }

            /// Closes the queue: every later put is refused, in every process.
            ///
            /// Receivers can still get what is in the queue. After that, `get` returns
            /// [`GetError::Closed`](crate::GetError::Closed) to every receiver, so no sentinels are needed.
            /// Calls that wait in a put or a get wake up.
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
