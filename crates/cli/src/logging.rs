//! Log output: `tracing` events of every crate, on standard error.

use crate::failure::Failure;
use crate::note;
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FmtSpan, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};
use undertone::train::ranks::launched;

/// Format of the lines on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Sentences
    #[default]
    Plain,
    /// One JSON object a line: timestamp, level, message, target and the spans around it
    Json,
}

/// Environment variable that selects the events shown, such as `warn` or `undertone_train=debug`.
const VARIABLE: &str = "RUST_LOG";
/// Filter without that variable: Undertone's own events, and warnings of other crates.
const DEFAULT: &str = "warn,undertone=info,xtask=info";
/// Filter of every rank but the first, because the first rank logs the same events.
const OTHER_RANKS: &str = "error";

/// Installs the subscriber that shows events.
///
/// # Errors
/// If `RUST_LOG` is not a valid filter; the default filter is installed in that case. If a subscriber is installed
/// already.
pub fn start(format: LogFormat) -> Result<(), Failure> {
    let asked = std::env::var(VARIABLE).ok().filter(|asked| !asked.trim().is_empty());
    let usual = if launched().is_some_and(|launched| launched.rank > 0) { OTHER_RANKS } else { DEFAULT };
    let (levels, refused) = match asked.as_deref().unwrap_or(usual).parse::<Targets>() {
        Ok(levels) => (levels, None),
        Err(error) => (DEFAULT.parse().unwrap_or_default(), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Plain => Box::new(lines.event_format(Sentence)),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(true);
            Box::new(lines.with_span_events(FmtSpan::CLOSE))
        }
    };
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines.with_filter(levels)))
        .map_err(|e| Failure::Machine(format!("the log cannot be set up: {e}")))?;
    match (asked, refused) {
        (Some(asked), Some(error)) => Err(Failure::BadInput(format!(
            "`{VARIABLE}` is `{asked}`: {error}; give levels, like `warn` or `undertone_train=debug`"
        ))),
        _ => Ok(()),
    }
}

/// Reports the error that ended the command, whatever `RUST_LOG` leaves out.
pub fn complain(format: LogFormat, text: &str) {
    match format {
        LogFormat::Plain => note!("error: {text}"),
        LogFormat::Json if tracing::enabled!(tracing::Level::ERROR) => tracing::error!("{text}"),
        LogFormat::Json => note!("{}", serde_json::json!({"level": "ERROR", "message": text})),
    }
}

/// Formats an event as its message, followed by its fields if it has any.
struct Sentence;

impl<S, N> FormatEvent<S, N> for Sentence
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<S, N>, mut writer: Writer, event: &Event) -> fmt::Result {
        let mut text = Text::default();
        event.record(&mut text);
        writeln!(writer, "{}{}", text.message, text.fields)
    }
}

/// Collects the message and the fields of an event.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields += &format!(" {name}={value:?}"),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
