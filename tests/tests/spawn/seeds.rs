//! Seeds: one for each process, and none that comes from elsewhere.

use tensorferry::spawn::{RankEnvironment, SpawnError, StartMethod, func, get_context, rank_seed};

use crate::support::for_every_method;

#[func]
fn seed(_rank: usize) -> Result<Option<String>, String> {
    Ok(std::env::var("TENSORFERRY_SEED").ok())
}

/// What processes have that a process with a seed starts: without saying anything, and with a seed of its
/// own.
#[func]
fn seeds_of_children(_rank: usize, method: StartMethod) -> Result<[Vec<Option<String>>; 2], SpawnError> {
    let method = get_context(method);
    Ok([method.spawn(seed, (), 1)?, method.options().seed(5).spawn(seed, (), 1)?])
}

fn told(base: u64, rank: usize) -> Option<String> {
    Some(rank_seed(base, rank).to_string())
}

for_every_method! {
    fn each_process_has_its_own(method: Context) {
        assert_eq!(method.options().seed(3).spawn(seed, (), 3).unwrap(), [told(3, 0), told(3, 1), told(3, 2)]);
        assert_eq!(method.spawn(seed, (), 1).unwrap(), [None]);
    }

    fn machines_of_one_group_differ(method: Context) {
        let group = RankEnvironment::PartOf { first_rank: 8, world_size: 16 };
        let options = method.options().rank_environment(group).seed(3);
        assert_eq!(options.spawn(seed, (), 2).unwrap(), [told(3, 8), told(3, 9)]);
    }

    fn a_seed_does_not_go_on_to_children(method: Context) {
        let [nothing_said, own] = method.options().seed(3).spawn(seeds_of_children, (method.start_method(),), 1).unwrap().remove(0);
        assert_eq!((nothing_said, own), (vec![None], vec![told(5, 0)]));
    }

    fn a_variable_that_is_set_by_name_wins(method: Context) {
        let options = method.options().seed(3).env_of(1, "TENSORFERRY_SEED", "11");
        assert_eq!(options.spawn(seed, (), 2).unwrap(), [told(3, 0), Some(String::from("11"))]);
    }
}
