//! Gives the software driver the name by which programs look for the real one, and has it stay loaded.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Once it is loaded, whoever asks the loader for `libcuda.so` gets this one.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    // Its threads and its handler of exit(3) stay, so its code has to.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
