//! Tests of kernels.

use super::{MIB, Machine, says, use_device};
use crate::ptx::Grid;
use crate::{Answer, Driver, Status};

/// Fills, and adds a number to each element, with atomic additions.
const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64
// A comment; with a semicolon.
.visible .entry fill(.param .u64 data, .param .u32 n, .param .f32 value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [n];
    ld.param.f32 %f1, [value];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd2, %rd1, %rd2;
    st.global.f32 [%rd2], %f1;
DONE:
    ret;
}
.visible .entry add_ten(.param .u64 data, .param .u32 pitch, .param .u32 n_rows)
{
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [pitch];
    ld.param.u32 %r2, [n_rows];
    mov.u32 %r3, 0;
LOOP:
    setp.eq.u32 %p1, %r3, %r2;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r3, %r1;
    add.u64 %rd2, %rd1, %rd2;
    red.global.add.f32 [%rd2], 0f41200000;
    add.u32 %r3, %r3, 1;
    bra LOOP;
DONE:
    ret;
}";

fn launch(driver: &Driver, name: &str, arguments: &[u64], blocks: u32, threads: u32) -> Answer {
    let module = driver.module_load(PTX)?;
    let kernel = driver.kernel(driver.module_function(module, name)?)?;
    assert_eq!(kernel.parameter_lens().count(), arguments.len());
    let grid = Grid { blocks: [blocks, 1, 1], threads: [threads, 1, 1] };
    driver.launch(kernel, arguments.to_vec(), grid, 0)?;
    driver.ctx_synchronize()
}

fn floats(driver: &Driver, address: u64, n: usize) -> Vec<f32> {
    let bytes = driver.read(address, n * 4).unwrap();
    bytes.chunks(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

#[test]
fn a_kernel_fills_as_many_elements_as_it_was_told() {
    let process = Machine::new("").process();
    let data = process.mem_alloc(4096).unwrap();
    launch(&process, "fill", &[data, 100, 1.5_f32.to_bits().into()], 4, 32).unwrap();
    assert_eq!(floats(&process, data, 100), [1.5; 100]);
    assert_eq!(process.read(data + 400, 4).unwrap(), [0xa5; 4], "the element behind them");
}

#[test]
fn additions_of_several_processes_are_all_there() {
    let machine = Machine::new("");
    let (owner, n_rows, n_columns) = (machine.process(), 8, 4_u32);
    let data = owner.mem_alloc(MIB).unwrap();
    owner.write(data, &[0; 128]).unwrap();
    let handle = owner.ipc_get_mem_handle(data).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 * n_columns {
            let (machine, handle) = (&machine, &handle);
            scope.spawn(move || {
                let process = machine.process();
                let opened = process.ipc_open_mem_handle(handle, 1).unwrap();
                let column = opened + u64::from(rank % n_columns) * 4;
                launch(&process, "add_ten", &[column, u64::from(n_columns) * 4, n_rows], 1, 1).unwrap();
                process.ipc_close_mem_handle(opened).unwrap();
            });
        }
    });
    assert_eq!(floats(&owner, data, 32), [20.0; 32]);
}

#[test]
fn a_kernel_breaks_its_context_where_it_touches_what_it_may_not() {
    let machine = Machine::new("devices=2");
    let process = machine.process();
    let data = process.mem_alloc(256).unwrap();
    assert_eq!(launch(&process, "fill", &[data, 65, 0], 1, 65), Err(Status::ILLEGAL_ADDRESS));
    assert_eq!(says(&process.mem_alloc(512)), "CUDA_ERROR_ILLEGAL_ADDRESS");

    let process = machine.process();
    let data = process.mem_alloc(256).unwrap();
    let zero = process.ctx_get_current().unwrap();
    use_device(&process, 1);
    process.ctx_enable_peer_access(zero).unwrap();
    launch(&process, "fill", &[data, 64, 0], 1, 64).unwrap();
    process.ctx_disable_peer_access(zero).unwrap();
    assert_eq!(launch(&process, "fill", &[data, 64, 0], 1, 64), Err(Status::ILLEGAL_ADDRESS), "no peer");
}

#[test]
fn modules_and_launches_are_checked() {
    let process = Machine::new("").process();
    for text in [
        "",
        "not PTX",
        ".entry f() { tex.2d %r1, %r2; }",
        ".entry f() { bra NOWHERE; }",
        ".entry f() { add.u32 %r1; }",
    ] {
        assert_eq!(process.module_load(text), Err(Status::INVALID_PTX), "{text}");
    }
    let module = process.module_load(PTX).unwrap();
    assert_eq!(process.module_function(module, "none"), Err(Status::NOT_FOUND));
    process.module_unload(module).unwrap();
    assert_eq!(process.module_function(module, "fill"), Err(Status::INVALID_HANDLE));
    assert_eq!(launch(&process, "fill", &[0, 0, 0], 1, 1025), Err(Status::INVALID_VALUE));
    let endless = process.module_load(".entry f() { L: bra L; }").unwrap();
    let kernel = process.kernel(process.module_function(endless, "f").unwrap()).unwrap();
    let grid = Grid { blocks: [1; 3], threads: [1; 3] };
    process.launch(kernel, Vec::new(), grid, 0).unwrap();
    assert_eq!(process.ctx_synchronize(), Err(Status::LAUNCH_FAILED));
}

#[test]
fn a_launch_needs_a_stream_of_the_current_context() {
    let process = Machine::new("devices=2").process();
    let (data, stream) = (process.mem_alloc(256).unwrap(), process.stream_create(1).unwrap());
    let module = process.module_load(PTX).unwrap();
    let kernel = process.kernel(process.module_function(module, "fill").unwrap()).unwrap();
    let grid = Grid { blocks: [1; 3], threads: [64, 1, 1] };
    let launch = |stream| process.launch(kernel.clone(), vec![data, 64, 0], grid, stream);
    launch(stream).unwrap();
    use_device(&process, 1);
    assert_eq!(launch(stream), Err(Status::INVALID_HANDLE));
    // A copy may be queued on a stream of any context.
    process.copy_dtod(data, data, 256, stream).unwrap();
    process.stream(stream).unwrap().synchronize().unwrap();
}
