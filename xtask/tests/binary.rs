//! Cargo builds a program before the tests only where a test of the program's own package asks for it. This is that test:
//! without it, `cargo test --workspace` would build every test that runs the command line, and no command line.

use std::path::Path;

#[test]
fn tests_find_the_program_beside_themselves() {
    let test = std::env::current_exe().expect("a path");
    let beside = test.ancestors().nth(2).map(|dir| dir.join(format!("xtask{}", std::env::consts::EXE_SUFFIX)));
    assert_eq!(beside.as_deref(), Some(Path::new(env!("CARGO_BIN_EXE_xtask"))));
}
