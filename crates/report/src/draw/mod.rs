//! SVG charts with plotters: axes, curves, bars, areas, histograms and matrices, in colours that the colour-blind can
//! tell apart.

pub(crate) mod areas;
pub(crate) mod bars;
pub(crate) mod canvas;
pub(crate) mod histogram;
pub(crate) mod lines;
pub(crate) mod matrix;
pub(crate) mod panels;
