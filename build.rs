//! Has the program linked at a fixed address.
//!
//! WHY       At another address in every process the loader writes to 600 KiB of the program, which each
//!           built-in JavaScript server then holds for itself, and which take a third of its start. Stacks,
//!           heaps and libraries keep their random addresses.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of_target = |name| std::env::var(name).unwrap_or_default();
    let (system, library) = (
        of_target("CARGO_CFG_TARGET_OS"),
        of_target("CARGO_CFG_TARGET_ENV"),
    );
    if system == "linux" && library == "gnu" {
        println!("cargo:rustc-link-arg-bin=settee=-no-pie");
    }
}
