//! The process that made the domain dies. The test process is no member here; it only listens.

use tensorferry_kit::tasks::{Host, Puppet};
use tensorferry_kit::{Chaos, Child, Loner, Random, alone, until};

#[test]
fn without_the_root_the_others_go_on_and_sweep_each_other() {
    alone(|| {
        let root = Loner::start(&Host::Puppets { maxsize: 4 }, &[]);
        let [first, second, third] = [(); 3].map(|()| Loner::start_in::<Puppet>(&root));
        assert_eq!(first.ask("put 1 0 100"), "put");
        assert_eq!(second.ask("get"), "got 1/0");
        third.begin("get");
        third.wait_until_asleep();
        root.kill();
        until("the root is swept", || first.ask("members") == "3");
        assert_eq!(first.ask("put 1 1 100"), "put");
        third.expect("got 1/1");
        // What the dead one sent and made is still there; what it held comes back.
        assert_eq!(first.ask("put 1 2 100"), "put");
        assert_eq!(second.ask("pass"), "put");
        first.kill();
        until("the first is swept", || second.ask("members") == "2");
        assert_eq!(third.ask("get"), "got 1/2");
        assert_eq!(third.ask("get"), "got 1/0");
        third.begin("get");
        third.wait_until_asleep();
        second.kill();
        third.expect("PeerDied");
        until("the second is swept", || third.ask("members") == "1");
        assert_eq!(third.ask("put 3 0 5"), "put");
        assert_eq!(third.ask("get"), "got 3/0");
        third.finish();
    });
}

#[test]
fn a_survivor_that_is_not_the_root_cleans_up_after_everybody() {
    alone(|| {
        let mut random = Random::from_environment();
        let seed = random.draw();
        println!("seed {seed}");
        let host = Host::Chaos(Chaos { n_rounds: 20, seed });
        let root = Loner::start(&host, &[]);
        let survivor = Loner::start_in::<Chaos>(&root);
        root.kill();
        survivor.expect("done");
        survivor.finish();
    });
}

#[test]
fn a_root_that_ends_well_leaves_the_domain_to_the_others() {
    alone(|| {
        let root = Loner::start(&Host::Puppets { maxsize: 2 }, &[]);
        let children = [(); 2].map(|()| Loner::start_in::<Puppet>(&root));
        root.finish();
        assert_eq!(children[0].ask("put 1 0 10"), "put");
        assert_eq!(children[1].ask("get"), "got 1/0");
        children.into_iter().for_each(Child::finish);
    });
}
