//! The arrows: what each crate may depend on. One direction only, so that each crate is useful alone.

use std::collections::BTreeSet;

use super::Offence;
use crate::workspace::{Package, Workspace};

const PREFIX: &str = "tensorferry-";
/// The packages outside `crates/` that gather or test the crates.
const ABOVE_ALL: [&str; 5] =
    ["tensorferry", "tensorferry-kit", "tensorferry-tests", "tensorferry-loom", "tensorferry-benches"];

/// Checks every manifest against the allowed arrows and the external crates that are confined to a few.
pub(super) fn check(
    workspace: &Workspace,
    arrows: &[(&str, &[&str])],
    confined: &[(&str, &[&str])],
) -> Vec<Offence> {
    let mut offences = Vec::new();
    for package in workspace.crates() {
        let Some(noun) = package.name.strip_prefix(PREFIX) else {
            offences.push(manifest(package, format!("the name of a crate begins with `{PREFIX}`")));
            continue;
        };
        if package.folder() != format!("crates/{}", package.name) {
            offences.push(manifest(package, format!("the folder of `{}` has another name", package.name)));
        }
        if !arrows.iter().any(|(name, _)| *name == noun) {
            offences.push(manifest(package, format!("`{noun}` is not in the table of arrows of xtask")));
            continue;
        }
        let allowed = reachable(noun, arrows);
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let ours = workspace.package(name).is_some();
            if ours && !name.strip_prefix(PREFIX).is_some_and(|noun| allowed.contains(noun)) {
                offences.push(manifest(package, format!("`{noun}` may not depend on `{name}`")));
            }
            let owners = confined.iter().find(|(confined, _)| *confined == name).map(|(_, owners)| *owners);
            if !dependency.is_dev && owners.is_some_and(|owners| !owners.contains(&noun)) {
                let by = owners.unwrap_or_default().join(", ");
                offences.push(manifest(package, format!("`{name}` is for these crates only: [{by}]")));
            }
        }
    }
    offences.extend(outside(workspace));
    let table = |what: String| Offence::new("xtask/src/tidy/facts.rs", 0, what);
    for (noun, used) in arrows {
        let Some(package) = workspace.package(&format!("{PREFIX}{noun}")) else {
            offences.push(table(format!("there is no crate `{PREFIX}{noun}`")));
            continue;
        };
        for other in *used {
            let name = format!("{PREFIX}{other}");
            if !package.dependencies.iter().any(|dependency| dependency.name == name) {
                offences.push(table(format!("`{noun}` may depend on `{name}` and does not")));
            }
        }
    }
    offences
}

/// The facade depends on crates only, nothing but tests and benches on the facade, and xtask on nothing of
/// ours.
fn outside(workspace: &Workspace) -> Vec<Offence> {
    let is_crate = |name: &str| workspace.crates().any(|package| package.name == name);
    let mut offences = Vec::new();
    for package in workspace.packages.iter().filter(|package| !is_crate(&package.name)) {
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let allowed = match package.name.as_str() {
                "xtask" => false,
                "tensorferry" => is_crate(name) || (dependency.is_dev && name == "tensorferry"),
                user if ABOVE_ALL.contains(&user) => is_crate(name) || ABOVE_ALL.contains(&name),
                _ => false,
            };
            if workspace.package(name).is_some() && !allowed {
                offences.push(manifest(package, format!("`{}` may not depend on `{name}`", package.name)));
            }
        }
    }
    offences
}

/// What `noun` may use: what the table says, and what those may use.
fn reachable<'table>(noun: &'table str, arrows: &[(&'table str, &[&'table str])]) -> BTreeSet<&'table str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![noun];
    while let Some(next) = open.pop() {
        for &to in arrows.iter().filter(|(from, _)| *from == next).flat_map(|(_, to)| *to) {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

fn manifest(package: &Package, what: String) -> Offence {
    Offence::new(&package.manifest, 0, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    const ARROWS: &[(&str, &[&str])] = &[("os", &[]), ("domain", &["os"]), ("storage", &["domain"])];
    const CONFINED: &[(&str, &[&str])] = &[("nix", &["os"])];

    fn package(name: &str, folder: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies =
            dependencies.iter().map(|&(name, is_dev)| Dependency { name: name.to_owned(), is_dev });
        Package {
            name: name.to_owned(),
            manifest: format!("{folder}/Cargo.toml"),
            dependencies: dependencies.collect(),
            ..Package::default()
        }
    }

    /// The three crates of the table with these dependencies of `domain` besides `os`, and `more`.
    fn offences(of_domain: &[(&str, bool)], more: &[Package]) -> Vec<String> {
        let (os, domain) = (("tensorferry-os", false), ("tensorferry-domain", false));
        let mut packages = vec![
            package("tensorferry-os", "crates/tensorferry-os", &[("nix", false)]),
            package("tensorferry-domain", "crates/tensorferry-domain", &[&[os], of_domain].concat()),
            package("tensorferry-storage", "crates/tensorferry-storage", &[os, domain]),
        ];
        packages.extend_from_slice(more);
        let offences = check(&Workspace { packages, ..Workspace::default() }, ARROWS, CONFINED);
        offences.iter().map(Offence::to_string).collect()
    }

    #[test]
    fn allowed_arrows_pass_also_through_a_dependency() {
        let facade = package("tensorferry", "facade", &[("tensorferry-storage", false)]);
        let tests = package("tensorferry-tests", "tests", &[("tensorferry", false), ("nix", false)]);
        assert_eq!(offences(&[("nix", true)], &[facade, tests]), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_upwards_is_an_offence_for_tests_too() {
        for is_dev in [false, true] {
            let found = offences(&[("tensorferry-storage", is_dev)], &[]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("`domain` may not depend on `tensorferry-storage`"), "{found:?}");
        }
        let facade = package("tensorferry", "facade", &[]);
        assert_eq!(offences(&[("tensorferry", false)], &[facade]).len(), 1);
    }

    #[test]
    fn a_crate_outside_the_table_is_an_offence() {
        let found = offences(&[], &[package("tensorferry-new", "crates/tensorferry-new", &[])]);
        assert!(found.len() == 1 && found[0].contains("table of arrows"), "{found:?}");
        let found = check(&Workspace::default(), &[("gone", &[])], &[]);
        assert!(found.len() == 1 && found[0].what.contains("tensorferry-gone"), "{found:?}");
    }

    #[test]
    fn an_arrow_that_no_manifest_has_is_an_offence() {
        let packages = ["os", "domain"]
            .map(|noun| package(&format!("tensorferry-{noun}"), &format!("crates/tensorferry-{noun}"), &[]));
        let workspace = Workspace { packages: packages.into(), ..Workspace::default() };
        let found = check(&workspace, &[("os", &[]), ("domain", &["os"])], &[]);
        assert!(found.len() == 1 && found[0].what.contains("`tensorferry-os` and does not"), "{found:?}");
    }

    #[test]
    fn a_wrong_name_or_folder_is_an_offence() {
        assert_eq!(offences(&[], &[package("ferry", "crates/ferry", &[])]).len(), 1);
        let packages = vec![package("tensorferry-os", "crates/os", &[])];
        assert_eq!(check(&Workspace { packages, ..Workspace::default() }, &[("os", &[])], &[]).len(), 1);
    }

    #[test]
    fn a_confined_external_crate_is_an_offence_elsewhere() {
        let found = offences(&[("nix", false)], &[]);
        assert!(found.len() == 1 && found[0].contains("[os]"), "{found:?}");
    }

    #[test]
    fn packages_outside_the_crates_have_arrows_too() {
        let facade = package("tensorferry", "facade", &[("tensorferry-tests", false)]);
        let tests = package("tensorferry-tests", "tests", &[]);
        let tool = package("xtask", "xtask", &[("tensorferry-os", false)]);
        assert_eq!(offences(&[], &[facade, tests, tool]).len(), 2);
    }
}
