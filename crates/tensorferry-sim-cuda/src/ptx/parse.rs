//! The parser: from the text of a module to its kernels.

use std::collections::BTreeMap;

use crate::{Answer, Status};

/// One `.entry` of a module.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(super) parameters: Vec<Parameter>,
    pub(super) code: Vec<Instruction>,
    pub(super) labels: BTreeMap<String, usize>,
}

#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) len_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Instruction {
    /// The register that the instruction depends on, and the value that it must have.
    pub(super) predicate: Option<(String, bool)>,
    /// The operation and its modifiers.
    pub(super) words: Vec<String>,
    pub(super) operands: Vec<String>,
}

/// The operations that `run.rs` implements.
const OPERATIONS: [&str; 18] = [
    "ld", "st", "mov", "cvta", "cvt", "add", "sub", "mul", "mad", "fma", "shl", "and", "setp", "bra", "ret",
    "exit", "red", "atom",
];

impl Kernel {
    /// The lengths of the parameters in bytes, in order.
    pub(crate) fn parameter_lens(&self) -> impl Iterator<Item = usize> {
        self.parameters.iter().map(|parameter| parameter.len_bytes)
    }

    /// All kernels of a module.
    ///
    /// # Errors
    /// INVALID_PTX if the text is no module, or uses anything that is not covered.
    pub(crate) fn all_of(text: &str) -> Answer<BTreeMap<String, Self>> {
        let text: String =
            text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
        let mut kernels = BTreeMap::new();
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once(".entry") {
            let (name, kernel, left) = Self::parse(after).ok_or(Status::INVALID_PTX)?;
            kernels.insert(name, kernel);
            rest = left;
        }
        if kernels.is_empty() { Err(Status::INVALID_PTX) } else { Ok(kernels) }
    }

    /// The name, the kernel, and the rest of the text.
    fn parse(text: &str) -> Option<(String, Self, &str)> {
        let (name, after) = text.split_once('(')?;
        let (parameters, after) = after.split_once(')')?;
        let (_, after) = after.split_once('{')?;
        let (body, rest) = after.split_once('}')?;
        let parameters = parameters.split(',').map(str::trim).filter(|text| !text.is_empty());
        let parameters = parameters.map(Parameter::parse).collect::<Option<Vec<_>>>()?;
        let mut kernel = Self { parameters, code: Vec::new(), labels: BTreeMap::new() };
        for statement in body.split(';') {
            kernel.add(statement)?;
        }
        let is_known = |label: &String| kernel.labels.contains_key(label);
        let mut branches = kernel.code.iter().filter(|instruction| instruction.words[0] == "bra");
        let has_targets = branches.all(|branch| branch.operands.first().is_some_and(is_known));
        has_targets.then(|| (name.trim().to_owned(), kernel, rest))
    }

    fn add(&mut self, statement: &str) -> Option<()> {
        let mut statement = statement.trim();
        while let Some((label, rest)) = statement.split_once(':').filter(|(label, _)| is_word(label)) {
            self.labels.insert(label.to_owned(), self.code.len());
            statement = rest.trim();
        }
        if statement.is_empty() || statement.starts_with(".reg") {
            return Some(());
        }
        let mut predicate = None;
        if let Some(guarded) = statement.strip_prefix('@') {
            let (register, rest) = guarded.split_once(char::is_whitespace)?;
            predicate = Some((register.trim_start_matches('!').to_owned(), !register.starts_with('!')));
            statement = rest.trim();
        }
        let (operation, operands) = statement.split_once(char::is_whitespace).unwrap_or((statement, ""));
        let words: Vec<String> = operation.split('.').map(str::to_owned).collect();
        let operands = operands.split(',').map(|operand| operand.trim().trim_matches(['[', ']']).to_owned());
        let operands: Vec<String> = operands.filter(|operand| !operand.is_empty()).collect();
        if !OPERATIONS.contains(&words[0].as_str()) || operands.len() < n_operands(&words) {
            return None;
        }
        self.code.push(Instruction { predicate, words, operands });
        Some(())
    }
}

/// The least number of operands of an instruction.
fn n_operands(words: &[String]) -> usize {
    match words[0].as_str() {
        "ret" | "exit" => 0,
        "bra" => 1,
        "add" | "sub" | "mul" | "shl" | "and" | "setp" | "atom" => 3,
        "mad" | "fma" => 4,
        _ => 2,
    }
}

impl Parameter {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().filter(|word| *word != ".param");
        let len_bytes = len_bytes_of(words.next()?.trim_start_matches('.'))?;
        Some(Self { name: words.next()?.to_owned(), len_bytes })
    }
}

/// The length of a type such as `u32`.
pub(super) fn len_bytes_of(kind: &str) -> Option<usize> {
    match kind {
        "u8" | "s8" | "b8" => Some(1),
        "u16" | "s16" | "b16" => Some(2),
        "u32" | "s32" | "b32" | "f32" => Some(4),
        "u64" | "s64" | "b64" => Some(8),
        _ => None,
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_$%".contains(c))
}
