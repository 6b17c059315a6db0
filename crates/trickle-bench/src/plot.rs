//! Draws how the time of a refresh grows with the size of the table.

use plotters::prelude::{
    ChartBuilder, IntoDrawingArea, IntoLogRange, LineSeries, Palette, Palette99, PathElement, SVGBackend,
    WHITE,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Draws an SVG of 800 × 500 pixels. The plot shows the milliseconds of a refresh over the number of rows in
/// the table. Both axes are logarithmic, and there is one line for each name.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn draw(lines: &BTreeMap<&str, Vec<(f64, f64)>>, file: &Path) -> Result<(), Box<dyn Error>> {
    let all = || lines.values().flatten();
    let low = all().fold(f64::INFINITY, |l, p| l.min(p.1));
    let high = all().fold(0.0f64, |h, p| h.max(p.1));
    let (from, to) = all().fold((f64::INFINITY, 0.0f64), |(l, h), p| (l.min(p.0), h.max(p.0)));
    let file = file.to_owned();
    let area = SVGBackend::new(&file, (800, 500)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| e.to_string())?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((from..to * 1.01).log_scale(), (low / 2.0..high * 2.0).log_scale())
        .map_err(|e| e.to_string())?;
    chart
        .configure_mesh()
        .x_desc("rows of the table")
        .y_desc("milliseconds of a refresh")
        .draw()
        .map_err(|e| e.to_string())?;
    for (i, (name, points)) in lines.iter().enumerate() {
        let colour = Palette99::pick(i);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), &colour).point_size(3))
            .map_err(|e| e.to_string())?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], Palette99::pick(i)));
    }
    chart.configure_series_labels().background_style(WHITE).draw().map_err(|e| e.to_string())?;
    area.present().map_err(|e| e.to_string().into())
}
