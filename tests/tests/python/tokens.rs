//! Values that one process takes by a token, in both languages.

use tensorferry_kit::tasks::Bearer;
use tensorferry_kit::{Loner, alone, where_possible};

use crate::program;

#[test]
fn a_token_is_taken_once_and_no_pickle_has_one() {
    where_possible(|| {
        alone(|| {
            let child = program("tokens.py", &["alone"]);
            child.expect("done");
            child.finish();
        });
    });
}

#[test]
fn a_token_of_one_language_is_taken_in_the_other() {
    where_possible(|| {
        alone(|| {
            let child = program("tokens.py", &["foreign"]);
            let bearer = Loner::start(&Bearer, &[]);
            bearer.say(format!("bytes {}", child.hear()));
            bearer.expect("2000");
            bearer.say("leave-bytes");
            child.say(bearer.hear());
            child.expect("done");
            child.finish();
            bearer.finish();
        });
    });
}
