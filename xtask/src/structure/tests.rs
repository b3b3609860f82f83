use super::*;

/// A workspace of files in a temporary folder.
struct Fixture(tempfile::TempDir);

/// Two crates, `model` on `ops`, and the page that says so.
fn fixture() -> Fixture {
    let fixture = Fixture(tempfile::tempdir().expect("a directory"));
    fixture.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
    fixture.manifest("ops", "");
    fixture.manifest("model", "[dependencies]\nundertone-ops = { path = \"../ops\" }\n");
    fixture.write("crates/ops/src/lib.rs", "pub struct Op;\n");
    fixture.write("crates/model/src/lib.rs", "");
    fixture.arrows("ops →\nmodel → ops\n");
    fixture
}

impl Fixture {
    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }

    fn manifest(&self, name: &str, more: &str) {
        let text = format!("[package]\nname = \"undertone-{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{more}");
        self.write(&format!("crates/{name}/Cargo.toml"), &text);
    }

    fn arrows(&self, lines: &str) {
        self.write("ARCHITECTURE.md", &format!("# A page\n\n```text arrows\n{lines}```\n\nmodel → nothing\n"));
    }

    /// Sources of `model`.
    fn model(&self, sources: &[(&str, &str)]) {
        sources.iter().for_each(|(name, text)| self.write(&format!("crates/model/src/{name}"), text));
    }

    /// What is found, as lines.
    fn findings(&self) -> Vec<String> {
        let found = look(self.0.path()).expect("a structure").findings;
        found.iter().map(ToString::to_string).collect()
    }

    fn finds(&self, expected: &[&str]) {
        assert_eq!(self.findings(), expected);
    }
}

const CIRCLE: &str = "circle: crates/model/src/a.rs, crates/model/src/b.rs: these files need each other:\n  \
                      crates/model/src/a.rs → crates/model/src/b.rs: B\n  \
                      crates/model/src/b.rs → crates/model/src/a.rs: A";

#[test]
fn a_workspace_as_it_should_be_has_a_table_and_no_fault() {
    let fixture = fixture();
    fixture.model(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
        ("a.rs", "pub struct A;\n"),
        ("b.rs", "use crate::A;\n"),
    ]);
    fixture.finds(&[]);
    let rows = look(fixture.0.path()).expect("a structure").rows;
    let expected = "crate         files   lines  longest  circles  depends on\n\
                    ops               1       1        1        0\n\
                    model             3       5        3        0  ops\n\
                    all               4       6        3        0\n";
    assert_eq!(table::table(&rows), expected);
}

#[test]
fn files_that_need_each_other_are_a_circle() {
    let fixture = fixture();
    let lib = ("lib.rs", "mod a;\nmod b;\n");
    fixture.model(&[
        lib,
        ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("b.rs", "pub struct B(Option<Box<super::a::A>>);\n"),
    ]);
    fixture.finds(&[CIRCLE]);
    assert_eq!(look(fixture.0.path()).expect("a structure").rows[1].circles, 1);
}

#[test]
fn a_path_is_followed_through_reexports_modules_and_globs() {
    let fixture = fixture();
    let a = ("a.rs", "use crate::offered::B;\npub struct A(B);\n");
    let lib = (
        "lib.rs",
        "mod a;\nmod b;\npub mod offered { pub use crate::inner::*; }\nmod inner { pub use super::b::B; }\npub use a::A;\n",
    );
    // The root itself needs neither: it offers them.
    fixture.model(&[lib, a, ("b.rs", "pub struct B;\nfn f() { let _ = crate::a::A::new(); }\n")]);
    fixture.finds(&[CIRCLE]);
    fixture.model(&[("b.rs", "pub struct B;\nfn f() { let _ = vec![super::A::new()]; }\n")]);
    fixture.finds(&[CIRCLE]);
    fixture.model(&[("b.rs", "pub struct B;\nfn f() { use super::*; }\n")]);
    assert_eq!(fixture.findings(), [] as [&str; 0], "the root does not lead to `a` by being looked at");
    fixture.model(&[("b.rs", "#[serde(with = \"crate::a::A\")]\npub struct B;\n")]);
    fixture.finds(&[CIRCLE]);
}

#[test]
fn a_parent_that_offers_what_is_below_is_no_circle_and_one_that_needs_it_is() {
    let fixture = fixture();
    let below = ("a/b.rs", "pub struct B(pub super::A);\n");
    fixture.model(&[("lib.rs", "pub mod a;\n"), ("a.rs", "mod b;\npub use b::B;\npub struct A;\n"), below]);
    fixture.finds(&[]);
    fixture.model(&[("a.rs", "mod b;\npub use b::B;\npub struct A;\nfn f(b: B) {}\n")]);
    let circle = "circle: crates/model/src/a.rs, crates/model/src/a/b.rs: these files need each other:\n  \
                  crates/model/src/a.rs → crates/model/src/a/b.rs: B\n  \
                  crates/model/src/a/b.rs → crates/model/src/a.rs: A";
    fixture.finds(&[circle]);
}

const FOLDERS: &str = "circle: model: a, b: these modules need each other:\n  \
                       crates/model/src/a/x.rs → crates/model/src/b/x.rs: X\n  \
                       crates/model/src/b/y.rs → crates/model/src/a/y.rs: Y";

/// Two folders without a circle of files that need each other.
fn folders() -> Fixture {
    let fixture = fixture();
    let folder = "mod x;\nmod y;\npub use x::X;\npub use y::Y;\n";
    fixture.model(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::X;\n"),
        ("a.rs", folder),
        ("b/mod.rs", folder),
        ("a/x.rs", "pub struct X(crate::b::X);\n"),
        ("a/y.rs", "pub struct Y(super::X);\n"),
        ("b/x.rs", "pub struct X;\n"),
        ("b/y.rs", "pub struct Y(X, crate::a::Y);\nuse super::X;\n"),
    ]);
    fixture
}

#[test]
fn folders_that_need_each_other_are_a_circle_though_no_files_are() {
    let fixture = folders();
    fixture.finds(&[FOLDERS]);
    assert_eq!(look(fixture.0.path()).expect("a structure").rows[1].circles, 1);
    fixture.model(&[("b/y.rs", "#[cfg(test)]\nuse crate::a::Y as Other;\npub struct Y;\n")]);
    fixture.finds(&[]);
}

#[test]
fn what_only_tests_need_is_no_circle() {
    let fixture = fixture();
    let b = "pub struct B;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse super::a::A;\n\
             #[cfg(all(test, unix))]\nmod more { use crate::a::A; }\n\
             impl B { #[cfg(test)]\n fn of(a: super::a::A) -> Self { Self } }\n";
    fixture.model(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("b.rs", b),
        ("b/tests.rs", "use crate::a::A;\n"),
    ]);
    fixture.finds(&[]);
    fixture.model(&[("b.rs", &b.replace("all(test", "any(test"))]);
    fixture.finds(&[CIRCLE]);
}

#[test]
fn arrows_are_those_of_the_page() {
    let fixture = fixture();
    fixture.arrows("ops →\nmodel → ops, store\nstore →\n");
    fixture.finds(&[
        "arrow: model: ARCHITECTURE.md has an arrow to store, on which its Cargo.toml does not depend",
        "arrow: store: ARCHITECTURE.md lists this crate, and the workspace has none",
    ]);
    fixture.arrows("model →\n");
    fixture.finds(&[
        "arrow: model: its Cargo.toml depends on ops, and ARCHITECTURE.md has no such arrow",
        "arrow: ops: ARCHITECTURE.md does not list this crate",
    ]);
    fixture.arrows("ops →\nmodel -> ops\n");
    fixture.finds(&[
        "arrow: ARCHITECTURE.md: `ARCHITECTURE.md`: line 5 is not an arrow, like `train → ops, store`: `model -> ops`",
    ]);
    fixture.write("ARCHITECTURE.md", "nothing\n");
    fixture.finds(&["arrow: ARCHITECTURE.md: `ARCHITECTURE.md`: it has no list of arrows, which begins with a line ````text arrows`"]);
}

#[test]
fn crates_in_a_circle_are_found_and_dev_dependencies_are_no_arrows() {
    let fixture = fixture();
    fixture.manifest("ops", "[dev-dependencies]\nundertone-model = { path = \"../model\" }\n");
    fixture.finds(&[]);
    fixture.manifest("ops", "[dependencies]\nundertone-model = { path = \"../model\" }\n");
    fixture.arrows("ops → model\nmodel → ops\n");
    fixture.finds(&["arrow: model, ops: these crates depend on each other in a circle, or on one that does"]);
}

#[test]
fn only_ops_names_a_backend() {
    let fixture = fixture();
    let naming = "use burn::tensor::Device;\nfn f() -> Device { Device::flex() }\n#[cfg(feature = \"cuda\")]\nfn g() {}\n\
                  fn h() -> bool { cfg!(feature = \"tch\") }\n#[cfg(test)]\nfn t() -> Device { Device::flex() }\n";
    fixture.write("crates/ops/src/lib.rs", naming);
    fixture.finds(&[]);
    fixture.model(&[("lib.rs", naming)]);
    fixture.finds(&[
        "backend: crates/model/src/lib.rs: `burn::tensor::Device::flex` names a backend, which only ops may",
        "backend: crates/model/src/lib.rs: code that depends on the feature cuda, which only ops's may",
        "backend: crates/model/src/lib.rs: code that depends on the feature tch, which only ops's may",
    ]);
    // A name of another crate's is none of Burn's, and features may be handed on.
    fixture.model(&[("lib.rs", "use undertone_ops::DeviceSpec;\nfn f() { DeviceSpec::Cuda(0); }\n")]);
    let forward =
        "[dependencies]\nundertone-ops = { path = \"../ops\" }\n[features]\ncuda = [\"undertone-ops/cuda\"]\n";
    fixture.manifest("ops", "[features]\ncuda = []\n");
    fixture.manifest("model", forward);
    fixture.finds(&[]);
    let more = "burn = { version = \"1\", features = [\"wgpu\"], optional = true }\nburn-tch = \"1\"\n[features]\ncuda = [\"burn/cuda\"]\n";
    fixture.manifest("model", &forward.replace("[features]\ncuda = [\"undertone-ops/cuda\"]\n", more));
    fixture.finds(&[
        "backend: crates/model/Cargo.toml: it asks burn for the backend wgpu, which only ops may",
        "backend: crates/model/Cargo.toml: it depends on burn-tch, which only ops may",
        "backend: crates/model/Cargo.toml: its feature cuda brings burn/cuda, which only ops may",
    ]);
}

#[test]
fn long_sources_are_found_and_those_that_are_no_rust_are_named() {
    let fixture = fixture();
    fixture.model(&[("lib.rs", &"\n".repeat(500))]);
    fixture.write("crates/model/tests/long.rs", &"\n".repeat(501));
    fixture.finds(&["length: crates/model/tests/long.rs: 501 lines, and 500 are enough for one file: split it"]);
    fixture.model(&[("lib.rs", "mod a;\n"), ("a.rs", "\nfn {\n")]);
    let error = look(fixture.0.path()).expect_err("no Rust").to_string();
    assert!(error.contains("a.rs`: "), "{error}");
}
