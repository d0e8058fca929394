//! How long a call polls before it sleeps, for every kind of handle.

/// The setting, for a handle with the field `typed`.
macro_rules! busy_poll {
    ($handle:ident) => {
        impl<T> $handle<T> {
            /// Sets how long a call that has to wait polls before it sleeps. The setting holds for this
            /// handle and its clones in this process. A handle that is sent to another process begins there
            /// with `None`.
            ///
            /// `None`, the default, adapts the time to how long polling has paid recently: up to 50
            /// microseconds, and none at all once polling has been in vain often enough. The limit is 250
            /// microseconds at first, and while messages come that late and no other thread needs the
            /// processors. Now and then a call polls for some milliseconds, to find out.
            ///
            /// A fixed longer time occupies a processor for that long. It suits a caller whose messages
            /// arrive within the time, and that cannot afford a wake-up. A wake-up took 3 to 50 microseconds
            /// where it was measured (docs/bench/NOTES.md). [`Duration::ZERO`](std::time::Duration::ZERO)
            /// makes a call sleep at once.
            ///
            /// The setting changes neither the outcome of a call nor its timeout. It has no effect on a
            /// machine with one processor. The name is that of `SO_BUSY_POLL` in socket(7).
            pub fn set_busy_poll(&self, how_long: Option<std::time::Duration>) {
                self.typed.ring().set_busy_poll(how_long);
            }
        }
    };
}

pub(crate) use busy_poll;
