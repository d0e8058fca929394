//! How long a handle looks before it sleeps, for every kind of handle.

/// The setting, for a handle with the field `typed`.
macro_rules! busy_poll {
    ($handle:ident) => {
        impl<T> $handle<T> {
            /// How long calls that have to wait look again and again before they sleep, on this handle and its clones in
            /// this process. A handle that is sent elsewhere begins with `None` there.
            ///
            /// `None`, which is how it is at first, means as long as has paid of late: from 2 to 50 microseconds, up to 250
            /// at first and while what comes comes that late and nobody else needs the processors, and now and then some
            /// milliseconds, to find out. A longer time keeps a processor busy for as long, and is for who
            /// answers within it and cannot wait for a wake-up, which took 3 to 50 microseconds where it was measured
            /// (docs/bench/NOTES.md). [`Duration::ZERO`](std::time::Duration::ZERO) sleeps at once.
            ///
            /// It changes neither what is waited for nor any time-out, and does nothing on a machine with one
            /// processor. The name is that of `SO_BUSY_POLL` in socket(7).
            pub fn set_busy_poll(&self, how_long: Option<std::time::Duration>) {
                self.typed.ring().set_busy_poll(how_long);
            }
        }
    };
}

pub(crate) use busy_poll;
