//! What both sides do with a tensor.

/// Bytes from one line that is read to the next: one line of every page.
const PAGE_ELEMENTS: usize = 4096 / size_of::<f32>();
/// Independent sums, so that memory is the limit and not the latency of an addition.
const LANES: usize = 64;

/// Writes every element.
#[inline(never)]
pub fn fill(elements: &mut [f32], value: f32) {
    elements.fill(value);
}

/// Reads every element.
#[inline(never)]
#[must_use]
pub fn sum(elements: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (chunks, rest) = elements.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, element) in lanes.iter_mut().zip(chunk) {
            *lane += element;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// Reads one line of every page.
#[inline(never)]
#[must_use]
pub fn touch(elements: &[f32]) -> f32 {
    elements.iter().step_by(PAGE_ELEMENTS).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_summed_and_every_page_touched() {
        let mut elements = vec![0.0; 3 * PAGE_ELEMENTS + 7];
        fill(&mut elements, 1.0);
        assert_eq!(sum(&elements), (3 * PAGE_ELEMENTS + 7) as f32);
        assert_eq!(touch(&elements), 4.0);
    }
}
