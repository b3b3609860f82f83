/// Error of a model or dataset that could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// A file of a model could not be fetched.
    #[error(
        "cannot fetch `{file}` of `{model}` from the hub ({reason}): check the name and the network, or give a local folder"
    )]
    Model {
        /// The model.
        model: String,
        /// The file.
        file: String,
        /// Reason.
        reason: String,
    },
    /// A file of a dataset could not be fetched.
    #[error(
        "cannot fetch `{file}` of the dataset `{dataset}` from the hub ({reason}): check the name and the network, or give local files of records"
    )]
    DatasetFile {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
        /// Reason.
        reason: String,
    },
    /// A dataset does not contain the requested split.
    #[error("the dataset `{dataset}` at revision `{revision}` {reason}")]
    DatasetPart {
        /// The dataset.
        dataset: String,
        /// Branch, tag or commit.
        revision: String,
        /// Available content.
        reason: String,
    },
}
