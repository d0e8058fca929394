//! What a process finds in `RANK`, `LOCAL_RANK` and `WORLD_SIZE`.

use tensorferry::spawn::{RankEnvironment, StartMethod, func, get_context};

use crate::support::for_every_method;

type Ranks = [Option<String>; 3];

#[func]
fn ranks(_rank: usize) -> Result<Ranks, String> {
    Ok(["RANK", "LOCAL_RANK", "WORLD_SIZE"].map(|name| std::env::var(name).ok()))
}

/// Starts two of its own, without anything set and with what they are by themselves.
#[func]
fn nested(_rank: usize, method: StartMethod) -> Result<(Vec<Ranks>, Vec<Ranks>), tensorferry::SpawnError> {
    let method = get_context(method);
    let inherited = method.options().rank_environment(RankEnvironment::Inherited).spawn(ranks, (), 2)?;
    Ok((inherited, method.spawn(ranks, (), 2)?))
}

fn told(values: [&str; 3]) -> Ranks {
    values.map(|value| Some(value).filter(|value| !value.is_empty()).map(String::from))
}

for_every_method! {
    fn each_process_finds_its_index_and_how_many_there_are(method: Context) {
        let values = method.spawn(ranks, (), 3).unwrap();
        assert_eq!(values, [told(["0", "0", "3"]), told(["1", "1", "3"]), told(["2", "2", "3"])]);
    }

    fn what_is_set_or_removed_by_name_wins(method: Context) {
        let options = method.options().env("WORLD_SIZE", "16").env_of(1, "RANK", "9").env_remove("LOCAL_RANK");
        assert_eq!(options.spawn(ranks, (), 2).unwrap(), [told(["0", "", "16"]), told(["9", "", "16"])]);
    }

    fn one_machine_of_several_counts_on_from_its_first_rank(method: Context) {
        let options = method.options().rank_environment(RankEnvironment::PartOf { first_rank: 8, world_size: 24 });
        assert_eq!(options.spawn(ranks, (), 2).unwrap(), [told(["8", "0", "24"]), told(["9", "1", "24"])]);
    }

    fn what_a_process_has_goes_on_to_its_children_only_where_that_is_asked_for(method: Context) {
        let options = method.options().env("RANK", "4").env("LOCAL_RANK", "5").env("WORLD_SIZE", "6");
        let (inherited, own) = options.spawn(nested, (method.start_method(),), 1).unwrap().remove(0);
        assert_eq!(inherited, [told(["4", "5", "6"]), told(["4", "5", "6"])]);
        assert_eq!(own, [told(["0", "0", "2"]), told(["1", "1", "2"])]);
    }
}
