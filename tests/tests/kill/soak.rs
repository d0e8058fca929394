//! Ten seconds of what `cargo xtask chaos` does for longer.

use std::time::Duration;

use tensorferry_kit::{Random, Soak};

#[test]
fn ten_seconds_of_kills_stops_and_departures() {
    let seed = Random::from_environment().seed();
    println!("seed {seed}");
    let report = Soak { duration: Duration::from_secs(10), n_processes: 5, seed }.run();
    println!("{report}");
    assert_eq!(report.complaints(), Vec::<String>::new());
    assert!(report.killed > 0 && report.stopped > 0 && report.left > 0);
}
