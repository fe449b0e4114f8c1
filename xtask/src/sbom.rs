//! `cargo xtask sbom`: the components of the program, as CycloneDX 1.5 in JSON
//! (<https://cyclonedx.org/docs/1.5/json/>).

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Package of the program that is described.
const PROGRAM: &str = "cellar";

/// Prints the components that `cellar` is linked with, or that generate its code: crates with their licences,
/// checksums and dependencies. The output depends only on the repository.
pub(crate) fn print(root: &Path) -> Result<()> {
    let metadata = metadata(root)?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    println!("{}", serde_json::to_string_pretty(&describe(&metadata, &checksums(&lock))?)?);
    Ok(())
}

/// Returns the output of `cargo metadata` with all dependencies on Linux.
pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET];
    let output = Command::new(cargo).args(arguments).current_dir(root).output().context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Platform of the packages.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Returns the SHA-256 of crates by name and version, from the text of Cargo.lock.
pub(crate) fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |package: &str, name: &str| -> Option<String> {
        let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]").skip(1);
    let entry = |package| {
        let key = (field(package, "name")?, field(package, "version")?);
        Some((key, field(package, "checksum")?))
    };
    packages.filter_map(entry).collect()
}

/// Returns the document for the output of `cargo metadata`.
pub(crate) fn describe(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package, "id"), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node, "id"), node)).collect();
    let program = packages.iter().find(|(_, package)| package["name"] == PROGRAM);
    let program = program.map(|(id, _)| id).context("no package cellar")?;
    let purl = |id: &str| {
        let package = packages.get(id).with_context(|| format!("{id} is not a package"))?;
        Ok::<_, anyhow::Error>(format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version")))
    };
    let (mut waiting, mut found) = (vec![program.clone()], BTreeSet::new());
    let (mut components, mut dependencies) = (BTreeMap::new(), BTreeMap::new());
    while let Some(id) = waiting.pop() {
        if !found.insert(id.clone()) {
            continue;
        }
        let node = nodes.get(&id).with_context(|| format!("{id} is not resolved"))?;
        let used = list(&node["deps"]).into_iter().filter(is_in_program).map(|dep| text(&dep, "pkg"));
        let used: BTreeSet<String> = used.collect();
        let names = used.iter().map(|id| purl(id)).collect::<Result<BTreeSet<_>>>()?;
        dependencies.insert(purl(&id)?, names);
        components.insert(purl(&id)?, component(&packages[&id], &purl(&id)?, checksums));
        waiting.extend(used);
    }
    let own = components.remove(&purl(program)?).context("the program is not a component")?;
    let edge = |(name, used): (String, BTreeSet<String>)| json!({ "ref": name, "dependsOn": used });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": own,
            "supplier": { "name": "Cellar's authors" },
        },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies.into_iter().map(edge).collect::<Vec<_>>(),
    }))
}

/// Whether a dependency is more than one of tests: linked, or used while building.
fn is_in_program(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
}

fn component(package: &Value, purl: &str, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let mut component = Map::new();
    let kind = if package["name"] == PROGRAM { "application" } else { "library" };
    component.insert("type".into(), kind.into());
    component.insert("bom-ref".into(), purl.into());
    component.insert("name".into(), package["name"].clone());
    component.insert("version".into(), package["version"].clone());
    component.insert("purl".into(), purl.into());
    if let Some(licence) = package["license"].as_str() {
        // Cargo's old form of OR.
        let expression = licence.replace('/', " OR ");
        component.insert("licenses".into(), json!([{ "expression": expression }]));
    }
    if let Some(checksum) = checksums.get(&(text("name"), text("version"))) {
        component.insert("hashes".into(), json!([{ "alg": "SHA-256", "content": checksum }]));
    }
    Value::Object(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_dependencies_of_tests_are_listed_once() {
        let package = |name: &str, licence: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": licence });
        let dep = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package("cellar", "MIT"), package("a", "MIT/Apache-2.0"), package("b", "MIT"), package("t", "MIT")],
            "resolve": { "nodes": [
                { "id": "cellar", "deps": [dep("a", Value::Null), dep("t", "dev".into()), dep("b", "build".into())] },
                { "id": "a", "deps": [dep("b", Value::Null)] },
                { "id": "b", "deps": [] },
                { "id": "t", "deps": [] },
            ] },
        });
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"abcd\"\n\n\
                    [[package]]\nname = \"b\"\nversion = \"1.0.0\"\n";
        let document = describe(&metadata, &checksums(lock)).unwrap();
        assert_eq!(document["metadata"]["component"]["purl"], "pkg:cargo/cellar@1.0.0");
        let names: Vec<&str> =
            document["components"].as_array().unwrap().iter().filter_map(|c| c["name"].as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let first = &document["components"][0];
        assert_eq!(first["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(first["hashes"][0]["content"], "abcd");
        assert!(document["components"][1].get("hashes").is_none());
        let edges = &document["dependencies"];
        assert_eq!(edges[0]["dependsOn"], json!(["pkg:cargo/b@1.0.0"]));
        assert_eq!(edges[2]["dependsOn"], json!(["pkg:cargo/a@1.0.0", "pkg:cargo/b@1.0.0"]));
    }

    #[test]
    fn a_document_without_the_program_is_refused() {
        let refusal = describe(&json!({ "packages": [] }), &BTreeMap::new()).unwrap_err();
        assert!(refusal.to_string().contains("cellar"), "{refusal}");
    }
}
