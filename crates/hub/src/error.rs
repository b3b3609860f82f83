/// Why the hub did not give a model or a dataset.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// It did not give a file of a model.
    #[error(
        "cannot fetch `{file}` of `{model}` from the hub ({reason}): check the name and the network, or give a local folder"
    )]
    Model {
        /// The model.
        model: String,
        /// The file.
        file: String,
        /// What went wrong.
        reason: String,
    },
    /// It did not give a file of a dataset.
    #[error(
        "cannot fetch `{file}` of the dataset `{dataset}` from the hub ({reason}): check the name and the network, or give local files of records"
    )]
    DatasetFile {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
        /// What went wrong.
        reason: String,
    },
    /// A dataset does not have what is asked for.
    #[error("the dataset `{dataset}` at revision `{revision}` {reason}")]
    DatasetPart {
        /// The dataset.
        dataset: String,
        /// Branch, tag or commit.
        revision: String,
        /// What it has instead.
        reason: String,
    },
}
