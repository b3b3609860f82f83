/// Error of a model or dataset that could not be fetched.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum HubError {
    /// A file of a model could not be fetched.
    #[error(
        "cannot fetch `{file}` of `{model}` from the hub ({reason}): check the name and the network, or give a local folder"
    )]
    Model { model: String, file: String, reason: String },
    /// A file of a dataset could not be fetched.
    #[error(
        "cannot fetch `{file}` of the dataset `{dataset}` from the hub ({reason}): check the name and the network, or give local files of records"
    )]
    DatasetFile { dataset: String, file: String, reason: String },
    /// A dataset does not contain the requested split.
    #[error("the dataset `{dataset}` at revision `{revision}` {reason}")]
    DatasetPart { dataset: String, revision: String, reason: String },
}
