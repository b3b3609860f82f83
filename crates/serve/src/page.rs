//! The page: three files that are part of the program.

use axum::http::header;
use axum::response::{Html, IntoResponse};

/// `GET /`.
pub async fn index() -> Html<&'static str> {
    Html(include_str!("page/index.html"))
}

/// `GET /page.css`.
pub async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("page/page.css"))
}

/// `GET /page.js`.
pub async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("page/page.js"))
}
