//! Gives the software driver the name by which programs look for the real one, and keeps it loaded.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Once it is loaded, all code that asks the loader for `libcuda.so` gets this library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    // Its threads and its handler of exit(3) stay until the process ends, so its code must stay loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
