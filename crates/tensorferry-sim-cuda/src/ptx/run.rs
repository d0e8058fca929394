//! Running a kernel, one thread of the grid after the other.

use std::collections::BTreeMap;

use super::Kernel;
use super::parse::{Instruction, len_bytes_of};
use crate::address_space::{AddressSpace, Ordinal, Touch};
use crate::{Answer, Status};

/// More instructions than a kernel of the tests ever needs; a thread beyond this is in an endless loop.
const MAX_STEPS_OF_A_THREAD: usize = 1_000_000;

/// The number of blocks, and of threads in each block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
}

/// The position of a thread: its block, and its place in the block.
#[derive(Clone, Copy)]
struct Place {
    block: [u32; 3],
    thread: [u32; 3],
    grid: Grid,
}

struct Thread<'a> {
    kernel: &'a Kernel,
    arguments: &'a [u64],
    place: Place,
    space: &'a AddressSpace,
    touch: Touch,
    registers: BTreeMap<&'a str, u64>,
}

/// All positions in a box, the first dimension fastest.
fn positions(size: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    let [x, y, z] = size;
    (0..z).flat_map(move |z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z])))
}

impl Kernel {
    /// Runs all threads.
    ///
    /// # Errors
    /// ILLEGAL_ADDRESS if a thread accesses memory that it may not; LAUNCH_FAILED if a thread does not end.
    pub(crate) fn run(&self, arguments: &[u64], grid: Grid, space: &AddressSpace, device: Ordinal) -> Answer {
        let touch = Touch { device, is_write: false, is_kernel: true };
        for block in positions(grid.blocks) {
            for thread in positions(grid.threads) {
                let place = Place { block, thread, grid };
                let registers = BTreeMap::new();
                Thread { kernel: self, arguments, place, space, touch, registers }.run()?;
            }
        }
        Ok(())
    }
}

/// In a kernel, every address that is not device memory is an illegal one.
fn illegal<T>(answer: Answer<T>) -> Answer<T> {
    answer.map_err(|_| Status::ILLEGAL_ADDRESS)
}

impl<'a> Thread<'a> {
    fn run(&mut self) -> Answer {
        let mut at = 0;
        for _ in 0..MAX_STEPS_OF_A_THREAD {
            let Some(instruction) = self.kernel.code.get(at) else { return Ok(()) };
            at += 1;
            if let Some((register, wanted)) = &instruction.predicate
                && (self.value(register) != 0) != *wanted
            {
                continue;
            }
            match instruction.words[0].as_str() {
                "ret" | "exit" => return Ok(()),
                "bra" => {
                    let target = self.kernel.labels.get(&instruction.operands[0]);
                    at = *target.ok_or(Status::INVALID_IMAGE)?;
                }
                _ => self.step(instruction)?,
            }
        }
        Err(Status::LAUNCH_FAILED)
    }

    /// The value of a register, a special register or a number.
    fn value(&self, operand: &str) -> u64 {
        if let Some(value) = self.registers.get(operand) {
            return *value;
        }
        let (name, axis) = operand.split_once('.').unwrap_or((operand, ""));
        let dimension = ["x", "y", "z"].iter().position(|known| *known == axis).unwrap_or(0);
        let special = match name {
            "%ctaid" => self.place.block,
            "%tid" => self.place.thread,
            "%ntid" => self.place.grid.threads,
            "%nctaid" => self.place.grid.blocks,
            _ => {
                let float =
                    operand.strip_prefix("0f").and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let hexadecimal =
                    operand.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let number = || operand.parse::<i64>().map_or(0, i64::cast_unsigned);
                return float.or(hexadecimal).unwrap_or_else(number);
            }
        };
        special[dimension].into()
    }

    fn address(&self, operand: &str) -> u64 {
        let (base, offset) = operand.split_once('+').unwrap_or((operand, "0"));
        self.value(base.trim()).wrapping_add(self.value(offset.trim()))
    }

    fn step(&mut self, instruction: &'a Instruction) -> Answer {
        let words: Vec<&str> = instruction.words.iter().map(String::as_str).collect();
        let kind = *words.last().ok_or(Status::INVALID_IMAGE)?;
        let operands = &instruction.operands;
        let value = |index: usize| operands.get(index).map_or(0, |operand| self.value(operand));
        let result = match words[0] {
            "ld" if words[1] == "param" => {
                let parameter = self.kernel.parameters.iter().position(|known| known.name == operands[1]);
                *self.arguments.get(parameter.ok_or(Status::INVALID_IMAGE)?).ok_or(Status::INVALID_IMAGE)?
            }
            "ld" => {
                let mut bytes = [0; 8];
                let len = len_bytes_of(kind).ok_or(Status::INVALID_IMAGE)?;
                illegal(self.space.read(self.address(&operands[1]), &mut bytes[..len], self.touch))?;
                u64::from_le_bytes(bytes)
            }
            "st" => {
                let len = len_bytes_of(kind).ok_or(Status::INVALID_IMAGE)?;
                let bytes = value(1).to_le_bytes();
                return illegal(self.space.write(self.address(&operands[0]), &bytes[..len], self.touch));
            }
            "red" => return self.add_to_memory(&operands[0], value(1), kind).map(|_| ()),
            "atom" => self.add_to_memory(&operands[1], value(2), kind)?.into(),
            "setp" => compare(words[1], kind, value(1), value(2))?.into(),
            _ => compute(&words, kind, [value(1), value(2), value(3)])?,
        };
        self.registers.insert(&operands[0], result);
        Ok(())
    }

    /// Adds to a 32-bit word in one step; returns the word before.
    fn add_to_memory(&self, operand: &str, value: u64, kind: &str) -> Answer<u32> {
        let value = low(value);
        let add = |old: u32| match kind {
            "f32" => (f32::from_bits(old) + f32::from_bits(value)).to_bits(),
            _ => old.wrapping_add(value),
        };
        if len_bytes_of(kind) != Some(4) {
            return Err(Status::INVALID_IMAGE);
        }
        illegal(self.space.update(self.address(operand), self.touch, add))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half of a register")]
fn low(value: u64) -> u32 {
    value as u32
}

/// The value of a register as a signed number.
fn signed(kind: &str, value: u64) -> i64 {
    match kind {
        "s32" => low(value).cast_signed().into(),
        "u32" | "b32" => low(value).into(),
        _ => value.cast_signed(),
    }
}

fn compare(how: &str, kind: &str, a: u64, b: u64) -> Answer<bool> {
    let order = match kind {
        "u64" | "b64" => Some(a.cmp(&b)),
        "f32" => f32::from_bits(low(a)).partial_cmp(&f32::from_bits(low(b))),
        _ => Some(signed(kind, a).cmp(&signed(kind, b))),
    };
    // If an operand is NaN, only `ne` is true.
    let Some(order) = order else { return Ok(how == "ne") };
    match how {
        "eq" => Ok(order.is_eq()),
        "ne" => Ok(order.is_ne()),
        "lt" => Ok(order.is_lt()),
        "le" => Ok(order.is_le()),
        "gt" => Ok(order.is_gt()),
        "ge" => Ok(order.is_ge()),
        _ => Err(Status::INVALID_IMAGE),
    }
}

fn compute(words: &[&str], kind: &str, operands: [u64; 3]) -> Answer<u64> {
    let [a, b, c] = operands;
    let len_bytes = len_bytes_of(kind).ok_or(Status::INVALID_IMAGE)?;
    if kind == "f32" && matches!(words[0], "add" | "sub" | "mul" | "fma") {
        let [a, b, c] = operands.map(|operand| f32::from_bits(low(operand)));
        let result = match words[0] {
            "add" => a + b,
            "sub" => a - b,
            "mul" => a * b,
            _ => a.mul_add(b, c),
        };
        return Ok(result.to_bits().into());
    }
    let is_wide = words.contains(&"wide");
    let product = || {
        if is_wide {
            signed(kind, a).wrapping_mul(signed(kind, b)).cast_unsigned()
        } else {
            a.wrapping_mul(b)
        }
    };
    let result = match words[0] {
        "mov" | "cvta" => a,
        // Converts from the last type to the one before it; widening keeps the sign.
        "cvt" if !words.contains(&"f32") => signed(kind, a).cast_unsigned(),
        "add" => a.wrapping_add(b),
        "sub" => a.wrapping_sub(b),
        "and" => a & b,
        "shl" => a.checked_shl(low(b)).unwrap_or(0),
        "mul" => product(),
        "mad" => product().wrapping_add(c),
        _ => return Err(Status::INVALID_IMAGE),
    };
    Ok(if len_bytes == 4 && !is_wide && words[0] != "cvt" { low(result).into() } else { result })
}
