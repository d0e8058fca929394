//! What cargo knows about the workspace: its packages, what each depends on, and what each builds.

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

/// The packages of the workspace, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    /// Where cargo builds: `target`, unless CARGO_TARGET_DIR or a configuration says otherwise.
    pub(crate) target_dir: String,
}

/// One package of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Where its manifest lies, from the root: `crates/tensorferry-os/Cargo.toml`.
    pub(crate) manifest: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) examples: Vec<String>,
    pub(crate) benches: Vec<String>,
}

/// One line of a package's dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Only for the package's own tests, examples and benches.
    pub(crate) is_dev: bool,
}

impl Workspace {
    /// Asks cargo. Needs no network: dependencies are not resolved.
    pub(crate) fn load(sh: &Shell) -> anyhow::Result<Workspace> {
        let json = cmd!(sh, "cargo metadata --no-deps --format-version 1").quiet().read()?;
        Workspace::parse(&json)
    }

    /// Reads the answer of `cargo metadata`.
    pub(crate) fn parse(json: &str) -> anyhow::Result<Workspace> {
        let metadata: Value = serde_json::from_str(json).context("`cargo metadata` did not print JSON")?;
        let root = text(&metadata, "workspace_root")?;
        let mut packages = list(&metadata, "packages")?
            .iter()
            .map(|package| Package::parse(package, root))
            .collect::<anyhow::Result<Vec<_>>>()?;
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Workspace { packages, target_dir: text(&metadata, "target_directory")?.to_owned() })
    }

    /// The library crates: those under `crates/`, which the facade gathers.
    pub(crate) fn crates(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.folder().starts_with("crates/"))
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl Package {
    fn parse(package: &Value, root: &str) -> anyhow::Result<Package> {
        let manifest = text(package, "manifest_path")?;
        let targets = list(package, "targets")?;
        Ok(Package {
            name: text(package, "name")?.to_owned(),
            manifest: manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/').to_owned(),
            dependencies: list(package, "dependencies")?
                .iter()
                .map(|dependency| {
                    let is_dev = dependency["kind"] == "dev";
                    Ok(Dependency { name: text(dependency, "name")?.to_owned(), is_dev })
                })
                .collect::<anyhow::Result<_>>()?,
            examples: names_of(targets, "example"),
            benches: names_of(targets, "bench"),
        })
    }

    /// The folder of the package, from the root.
    pub(crate) fn folder(&self) -> &str {
        self.manifest.strip_suffix("/Cargo.toml").unwrap_or("")
    }
}

fn names_of(targets: &[Value], kind: &str) -> Vec<String> {
    let is_of_kind =
        |target: &&Value| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&kind.into()));
    let names = targets.iter().filter(is_of_kind).filter_map(|target| target["name"].as_str());
    names.map(str::to_owned).collect()
}

fn text<'json>(value: &'json Value, field: &str) -> anyhow::Result<&'json str> {
    value[field].as_str().with_context(|| format!("`cargo metadata` gave no text in its field `{field}`"))
}

fn list<'json>(value: &'json Value, field: &str) -> anyhow::Result<&'json Vec<Value>> {
    value[field].as_array().with_context(|| format!("`cargo metadata` gave no list in its field `{field}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_cargo_is_read() {
        let json = r#"{ "workspace_root": "/w", "target_directory": "/t", "packages": [
            { "name": "tensorferry", "manifest_path": "/w/facade/Cargo.toml", "dependencies": [],
              "targets": [{ "name": "hogwild", "kind": ["example"] }, { "name": "tensorferry", "kind": ["lib"] }] },
            { "name": "tensorferry-os", "manifest_path": "/w/crates/tensorferry-os/Cargo.toml", "targets": [],
              "dependencies": [{ "name": "rustix", "kind": null }, { "name": "proptest", "kind": "dev" }] } ] }"#;
        let workspace = Workspace::parse(json).unwrap();
        assert_eq!(workspace.target_dir, "/t");
        assert_eq!(workspace.crates().map(Package::folder).collect::<Vec<_>>(), ["crates/tensorferry-os"]);
        assert_eq!(workspace.package("tensorferry").unwrap().examples, ["hogwild"]);
        let dependencies = &workspace.package("tensorferry-os").unwrap().dependencies;
        assert_eq!(dependencies.iter().map(|d| d.is_dev).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn an_answer_without_a_field_names_the_field() {
        let error = Workspace::parse(r#"{ "workspace_root": "/w" }"#).unwrap_err();
        assert!(error.to_string().contains("packages"), "{error}");
    }
}
