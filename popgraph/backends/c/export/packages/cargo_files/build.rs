//! Compiles the C of NAME into a static library.
//!
//! CC, AR and CFLAGS are read from the environment, for a target first, as in
//! CC_aarch64_unknown_linux_gnu, then TARGET_CC if the target is another machine, then CC.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output};

const SOURCES: &[&str] = &[SOURCES_];
/// The compiler for another machine than this one.
const CROSS: &str = COMPILER;
/// The flags that select the processor: those of `popgraph export --target`.
const ARCHITECTURE: &[&str] = &[ARCHITECTURE_];
const FLAGS: &[&str] = &[FLAGS_];
const GCC_FLAGS: &[&str] = &[OWN];

fn chosen(name: &str) -> Option<String> {
    let target = env::var("TARGET").unwrap();
    let mut names = vec![
        format!("{name}_{target}"),
        format!("{name}_{}", target.replace('-', "_")),
    ];
    if is_cross() {
        names.push(format!("TARGET_{name}"));
    }
    names.push(name.to_string());
    for one in &names {
        println!("cargo:rerun-if-env-changed={one}");
    }
    names.iter().find_map(|one| env::var(one).ok())
}

fn is_cross() -> bool {
    env::var("TARGET") != env::var("HOST")
}

fn done(words: &[String]) -> Output {
    let found = Command::new(&words[0]).args(&words[1..]).output();
    let output = found.unwrap_or_else(|error| panic!("{} cannot be run: {error}", words[0]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", words.join(" "));
    output
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

fn main() {
    println!("cargo:rerun-if-changed=c");
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let default = if is_cross() { CROSS } else { "cc" };
    let compiler = words(&chosen("CC").unwrap_or_else(|| default.to_string()));
    let mut flags: Vec<&str> = [ARCHITECTURE, FLAGS].concat();
    let version = done(&[&compiler[..], &["--version".to_string()]].concat());
    if !String::from_utf8_lossy(&version.stdout).contains("clang") {
        flags.extend(GCC_FLAGS);
    }
    if system != "windows" && system != "none" {
        flags.push("-fPIC");
    }
    let own = words(&chosen("CFLAGS").unwrap_or_default());
    let archive = out.join("libNAME.a").display().to_string();
    let mut archiver = words(&chosen("AR").unwrap_or_else(|| "ar".to_string()));
    archiver.extend(["crs".to_string(), archive.clone()]);
    for source in SOURCES {
        let object = out.join(format!("{source}.o")).display().to_string();
        let mut command = compiler.clone();
        command.extend(flags.iter().map(|one| one.to_string()));
        command.extend(own.iter().cloned());
        command.extend(["-Ic", "-c"].map(str::to_string));
        command.extend([format!("c/{source}"), "-o".to_string(), object.clone()]);
        done(&command);
        archiver.push(object);
    }
    let _ = std::fs::remove_file(&archive);
    done(&archiver);
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=NAME");
    if env::var_os("CARGO_CFG_UNIX").is_some() {
        println!("cargo:rustc-link-lib=m");
    }
}
