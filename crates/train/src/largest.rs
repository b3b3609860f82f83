//! Check that each parameter of a model fits a device's maximum allocation.

use crate::{Amount, TrainError};
use undertone_ops::Capacity;
use undertone_store::ParameterInfo;

/// Checks the largest parameter. A device reports an allocation that is too large only at a read, perhaps minutes
/// later.
pub(crate) fn check_largest(parameters: &[ParameterInfo], capacity: Capacity) -> Result<(), TrainError> {
    let bytes = |parameter: &ParameterInfo| 4 * parameter.shape.iter().product::<usize>() as u64;
    let largest = parameters.iter().max_by_key(|parameter| bytes(parameter));
    let Some((parameter, most)) = largest.zip(capacity.tensor).filter(|(parameter, most)| bytes(parameter) > *most)
    else {
        return Ok(());
    };
    let (name, needed) = (parameter.name.clone(), Amount(bytes(parameter)));
    Err(TrainError::TooLarge { name, needed, most: Amount(most) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_parameter_decides() {
        let parameter =
            |name: &str, shape: &[usize]| ParameterInfo { name: name.into(), shape: shape.into(), trainable: false };
        let parameters = [parameter("a", &[10, 10]), parameter("embedding", &[51865, 768]), parameter("c", &[7])];
        let check = |tensor| check_largest(&parameters, Capacity { total: None, tensor });
        assert!(check(None).is_ok() && check(Some(4 * 51865 * 768)).is_ok());
        let said = check(Some(1 << 27)).expect_err("too large").to_string();
        assert!(said.contains("`embedding`") && said.contains("159 MB") && said.contains("134 MB"), "{said}");
    }
}
