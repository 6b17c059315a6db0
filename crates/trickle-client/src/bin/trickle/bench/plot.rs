//! How refreshes grow with the tables, drawn.

use super::cycle::Way;
use super::report::Cell;
use crate::failure::Failure;
use plotters::prelude::{
    ChartBuilder, IntoDrawingArea, IntoLogRange, LineSeries, Palette, Palette99, PathElement, SVGBackend,
    WHITE,
};
use std::collections::BTreeMap;
use std::path::Path;

/// Medians of refreshes over the rows of their table, both logarithmic, a line for each scenario.
pub(crate) fn draw(cells: &[Cell], file: &Path) -> Result<(), Failure> {
    let mut lines: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for cell in cells {
        if let Some(median) = cell.median(Way::Incremental) {
            lines.entry(cell.scenario).or_default().push((f64::from(cell.rows), median * 1000.0));
        }
    }
    let all = || lines.values().flatten();
    let low = all().fold(f64::INFINITY, |l, p| l.min(p.1));
    let high = all().fold(0.0f64, |h, p| h.max(p.1));
    let (from, to) = all().fold((f64::INFINITY, 0.0f64), |(l, h), p| (l.min(p.0), h.max(p.0)));
    let failed = |e: &dyn std::fmt::Display| Failure::failed(format!("cannot draw {}: {e}", file.display()));
    let area = SVGBackend::new(file, (800, 500)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((from..to * 1.01).log_scale(), (low / 2.0..high * 2.0).log_scale())
        .map_err(|e| failed(&e))?;
    chart
        .configure_mesh()
        .x_desc("rows of the table")
        .y_desc("milliseconds of a refresh")
        .draw()
        .map_err(|e| failed(&e))?;
    for (i, (name, points)) in lines.iter().enumerate() {
        let colour = Palette99::pick(i);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), &colour).point_size(3))
            .map_err(|e| failed(&e))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], Palette99::pick(i)));
    }
    chart.configure_series_labels().background_style(WHITE).draw().map_err(|e| failed(&e))?;
    area.present().map_err(|e| failed(&e))
}
