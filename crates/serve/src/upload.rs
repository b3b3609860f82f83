//! Forms with a recording, read into memory within the limits.

use crate::error::ApiError;
use crate::limits::Limits;
use axum::extract::Multipart;
use axum::extract::multipart::{Field, MultipartError, MultipartRejection};
use axum::http::StatusCode;
use std::path::PathBuf;
use std::sync::Arc;
use undertone::data::audio::Stored;

/// Form with a recording.
#[derive(Debug, Default)]
pub struct Form {
    /// Name of the recording's file, for messages alone, and its bytes.
    file: Option<(String, Vec<u8>)>,
    /// Other fields, in order.
    fields: Vec<(String, String)>,
}

/// Maximum size of a field besides the recording, in bytes.
const LONGEST_FIELD: usize = 64 << 10;
/// Maximum number of fields.
const MOST_FIELDS: usize = 64;

impl Form {
    /// Reads a form as it arrives.
    pub async fn read(parts: Result<Multipart, MultipartRejection>, limits: &Limits) -> Result<Self, ApiError> {
        let mut parts = parts.map_err(|error| {
            ApiError::new(error.status(), format!("the request is not a form: {}", error.body_text()))
        })?;
        let mut form = Self::default();
        while let Some(field) = in_time(limits, parts.next_field()).await? {
            let name = field.name().unwrap_or_default().to_owned();
            if form.fields.len() == MOST_FIELDS || (name == "file" && form.file.is_some()) {
                return Err(ApiError::bad_request("the form has too many fields: send one `file`"));
            }
            if name == "file" {
                let file_name = field.file_name().filter(|name| !name.is_empty()).unwrap_or("recording").to_owned();
                form.file = Some((file_name, content(field, limits, limits.bytes).await?));
                continue;
            }
            let value = String::from_utf8(content(field, limits, LONGEST_FIELD).await?)
                .map_err(|_| ApiError::bad_request(format!("the field `{name}` is not UTF-8 text")))?;
            form.fields.push((name, value));
        }
        Ok(form)
    }

    /// Takes the value of a field; `None` if it is empty or not there.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.fields.iter().position(|(known, _)| known == name)?;
        Some(self.fields.remove(at).1).filter(|value| !value.is_empty())
    }

    /// Takes the values of a field that may occur several times, without empty ones.
    pub fn take_all(&mut self, name: &str) -> Vec<String> {
        let (taken, others) = std::mem::take(&mut self.fields).into_iter().partition(|(known, _)| known == name);
        self.fields = others;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).filter(|value| !value.is_empty()).collect()
    }

    /// Takes a field that is `true` or `false`; false if it is not there.
    pub fn take_flag(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.take(name).as_deref() {
            None | Some("false" | "False" | "0") => Ok(false),
            Some("true" | "True" | "1") => Ok(true),
            Some(other) => Err(ApiError::bad_request(format!("`{name}` is `{other}`: give `true` or `false`"))),
        }
    }

    /// Returns the recording, if every other field was taken.
    pub fn recording(self) -> Result<Stored, ApiError> {
        if let Some((name, _)) = self.fields.iter().find(|(_, value)| !value.is_empty()) {
            return Err(ApiError::bad_request(format!("this server has no field `{name}`: leave it out")));
        }
        let (name, bytes) =
            self.file.ok_or_else(|| ApiError::bad_request("the form has no `file`: send a recording"))?;
        if bytes.is_empty() {
            return Err(ApiError::bad_request(format!("`{name}` is empty: send a recording")));
        }
        Ok(Stored::memory(PathBuf::from(name), Arc::new(bytes)))
    }
}

async fn content(mut field: Field<'_>, limits: &Limits, most: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(part) = in_time(limits, field.chunk()).await? {
        if bytes.len() + part.len() > most {
            return Err(too_large(most));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// Waits for the next part of a request.
async fn in_time<T>(limits: &Limits, part: impl Future<Output = Result<T, MultipartError>>) -> Result<T, ApiError> {
    match tokio::time::timeout(limits.idle, part).await {
        Ok(Ok(part)) => Ok(part),
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(too_large(limits.bytes)),
        Ok(Err(error)) => Err(ApiError::new(error.status(), format!("the form cannot be read: {}", error.body_text()))),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("nothing arrived for {} s: send the request again", limits.idle.as_secs()),
        )),
    }
}

/// Returns the error of a request with more than `most` bytes.
pub fn too_large(most: usize) -> ApiError {
    let size = if most >= 1 << 20 { format!("{} MiB", most >> 20) } else { format!("{} KiB", most >> 10) };
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the request has more than {size}: send less at once"))
}
