//! The table as a picture: how many times as long as tensorferry each column takes, on a logarithmic scale.

use std::fmt::Write as _;

use tensorferry_benches::number;

use crate::catalogue::{COLUMNS, Column};
use crate::results::Results;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 390.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 70.0;
const BAR: f64 = 11.0;
const GAP: f64 = 10.0;
/// Powers of ten at the two ends.
const DECADES: (f64, f64) = (-1.0, 5.0);

const fn colour(column: Column) -> &'static str {
    match column {
        Column::Ferry => "#1f6feb",
        Column::Payload => "#8c959f",
        Column::Socket => "#bf3989",
        Column::IpcChannel => "#bf8700",
        Column::Iceoryx2 => "#1a7f37",
        Column::TorchFd => "#cf222e",
        Column::TorchFs => "#8250df",
        Column::Floor => "#24292f",
    }
}

fn x_of(times: f64) -> f64 {
    let (low, high) = DECADES;
    LEFT + (times.log10().clamp(low, high) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
}

pub(crate) fn svg(results: &Results) -> String {
    let mut body = String::new();
    let mut y = TOP;
    for row in &results.rows {
        let others: Vec<_> = COLUMNS.into_iter().filter(|column| *column != Column::Ferry).collect();
        let bars: Vec<_> =
            others.iter().filter_map(|column| Some((*column, results.times_ferry(row, *column)?))).collect();
        if bars.is_empty() {
            continue;
        }
        let middle = y + bars.len() as f64 * BAR / 2.0 + 4.0;
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            row.title
        );
        for (column, times) in bars {
            let (from, to) = (x_of(1.0).min(x_of(times)), x_of(1.0).max(x_of(times)));
            let _ = writeln!(
                body,
                "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>\
                 <text class=\"n\" x=\"{:.1}\" y=\"{:.1}\">{}x</text>",
                (to - from).max(1.0),
                BAR - 2.0,
                colour(column),
                to + 4.0,
                y + BAR - 3.0,
                number(times)
            );
            y += BAR;
        }
        y += GAP;
    }
    let mut frame = String::new();
    let mut decade = DECADES.0;
    while decade <= DECADES.1 {
        let x = x_of(10_f64.powf(decade));
        let stroke = if decade == 0.0 { "#1f6feb" } else { "#d0d7de" };
        let label = number(10_f64.powf(decade));
        let _ = writeln!(
            frame,
            "<line x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{y:.1}\" stroke=\"{stroke}\"/>\
             <text class=\"n\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}x</text>",
            TOP - 6.0,
            TOP - 10.0
        );
        decade += 1.0;
    }
    let mut key_x = 20.0;
    for column in COLUMNS.into_iter().filter(|column| *column != Column::Ferry) {
        let _ = writeln!(
            frame,
            "<rect x=\"{key_x}\" y=\"32\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"41\">{}</text>",
            colour(column),
            key_x + 14.0,
            column.title()
        );
        key_x += 130.0;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>text {{ font: 12px sans-serif; fill: #24292f }} .n {{ font-size: 9px }} .t {{ font-size: 14px }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text class=\"t\" x=\"20\" y=\"20\">how many times as long as tensorferry (left of the blue line: less)</text>\n\
         {frame}{body}</svg>\n",
        height = y + 10.0
    )
}
