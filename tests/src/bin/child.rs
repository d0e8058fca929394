//! The one program that tests start as a child. Its sub-commands are the tasks of the kit.

fn main() {
    tensorferry_kit::run_child();
}
