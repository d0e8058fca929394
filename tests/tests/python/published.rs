//! What a program in one language has published, and one in the other attaches to.

use serde::{Deserialize, Serialize};
use tensorferry::listen::publish_in;
use tensorferry::queue::{Sender, channel_in};
use tensorferry::tensor::SharedTensor;
use tensorferry::{Tensor, TensorMut};
use tensorferry_kit::tasks::Attacher;
use tensorferry_kit::{DEADLINE, Loner, alone, until, where_possible, with_family};

use crate::{address, program};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Shelf {
    step: u32,
    name: String,
    weights: Tensor<f32>,
    hits: SharedTensor<i64>,
    answers: Sender<u32>,
}

#[test]
fn python_takes_what_rust_has_published() {
    where_possible(|| {
        with_family(|family| {
            let address = address();
            let child = program("attach.py", &[&address]);
            child.expect("waiting");
            let weights = TensorMut::from_slice_in(family.heap(), &[1.0, 2.0, 3.0, 4.0], [2, 2]).unwrap();
            let hits = TensorMut::zeros_in(family.heap(), [1]).unwrap().share();
            let (answers, receiver) = channel_in(family.heap(), 1).unwrap();
            let name = "shelf".to_owned();
            let shelf = Shelf { step: 3, name, weights: weights.freeze(), hits, answers };
            let published = publish_in(family.heap(), &address, &shelf).unwrap();
            child.expect("attached");
            assert_eq!(receiver.get_timeout(DEADLINE).unwrap(), 7);
            assert_eq!(shelf.hits.load([0]).unwrap(), 1);
            drop((published, shelf));
            child.say("gone");
            child.expect("done");
            child.finish();
        });
    });
}

#[test]
fn rust_takes_what_python_has_published_and_a_copy_of_the_socket_answers_nobody() {
    where_possible(|| {
        alone(|| {
            let address = address();
            let child = program("publish.py", &[&address]);
            child.expect("published");
            let attacher = Loner::start(&Attacher { address: address.clone() }, &[]);
            attacher.say("foreign");
            attacher.expect("1 ab [0.0, 0.0, 0.0, 0.0, 0.0, 5.0]");
            attacher.say("wrong");
            assert!(attacher.hear().contains("not of the expected type"));
            child.say("replace");
            child.expect("replaced");
            let both = "1 ab [0.0, 0.0, 0.0, 0.0, 0.0, 5.0]; 2 ab [0.0, 0.0, 0.0, 0.0, 0.0, 5.0]";
            attacher.say("foreign");
            attacher.expect(both);
            until("all are counted", || {
                child.say("count");
                let said = child.hear();
                said.starts_with("3 1 process ") && said.ends_with("it went away")
            });
            child.say("fork");
            child.expect("forked");
            child.say("close");
            child.expect("closed");
            child.say("again");
            // It is killed beside a process that has a copy of its socket, which answers nobody.
            child.expect("forked");
            attacher.say("number");
            attacher.expect("3");
            child.kill_unreaped();
            attacher.say("number");
            let said = attacher.hear();
            assert!(said.contains("it went away"), "{said}");
            attacher.say("kept");
            attacher.expect(both);
            attacher.finish();
        });
    });
}
