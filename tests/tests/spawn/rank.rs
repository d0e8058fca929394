//! What a process finds in `RANK`, `LOCAL_RANK` and `WORLD_SIZE`.

use tensorferry::spawn::{Options, RankEnvironment, func, spawn};

type Ranks = [Option<String>; 3];

#[func]
fn ranks(_rank: usize) -> Result<Ranks, String> {
    Ok(["RANK", "LOCAL_RANK", "WORLD_SIZE"].map(|name| std::env::var(name).ok()))
}

/// Starts two of its own, without anything set and with what they are by themselves.
#[func]
fn nested(_rank: usize) -> Result<(Vec<Ranks>, Vec<Ranks>), tensorferry::SpawnError> {
    let inherited = Options::new().rank_environment(RankEnvironment::Inherited).spawn(ranks, (), 2)?;
    Ok((inherited, spawn(ranks, (), 2)?))
}

fn told(values: [&str; 3]) -> Ranks {
    values.map(|value| Some(value).filter(|value| !value.is_empty()).map(String::from))
}

#[test]
fn each_process_finds_its_index_and_how_many_there_are() {
    let values = spawn(ranks, (), 3).unwrap();
    assert_eq!(values, [told(["0", "0", "3"]), told(["1", "1", "3"]), told(["2", "2", "3"])]);
}

#[test]
fn what_is_set_or_removed_by_name_wins() {
    let options = Options::new().env("WORLD_SIZE", "16").env_of(1, "RANK", "9").env_remove("LOCAL_RANK");
    assert_eq!(options.spawn(ranks, (), 2).unwrap(), [told(["0", "", "16"]), told(["9", "", "16"])]);
}

#[test]
fn one_machine_of_several_counts_on_from_its_first_rank() {
    let options = Options::new().rank_environment(RankEnvironment::PartOf { first_rank: 8, world_size: 24 });
    assert_eq!(options.spawn(ranks, (), 2).unwrap(), [told(["8", "0", "24"]), told(["9", "1", "24"])]);
}

#[test]
fn what_a_process_has_goes_on_to_its_children_only_where_that_is_asked_for() {
    let options = Options::new().env("RANK", "4").env("LOCAL_RANK", "5").env("WORLD_SIZE", "6");
    let (inherited, own) = options.spawn(nested, (), 1).unwrap().remove(0);
    assert_eq!(inherited, [told(["4", "5", "6"]), told(["4", "5", "6"])]);
    assert_eq!(own, [told(["0", "0", "2"]), told(["1", "1", "2"])]);
}
