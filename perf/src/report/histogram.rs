//! Histograms as they travel in the JSON of a run: HdrHistogram V2, deflated, base64.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// The histogram of a quantity; none if it was written without.
pub fn decode(text: &str) -> Result<Option<Histogram<u64>>> {
    if text.is_empty() {
        return Ok(None);
    }
    let bytes = BASE64.decode(text).context("a histogram is not base64")?;
    let mut histogram: Histogram<u64> = Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| anyhow::anyhow!("a histogram is not in HdrHistogram's V2: {error:?}"))?;
    histogram.auto(true);
    Ok(Some(histogram))
}

/// Text of a histogram.
pub fn encode(histogram: &Histogram<u64>) -> Result<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| anyhow::anyhow!("a histogram could not be written: {error:?}"))?;
    Ok(BASE64.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded_and_what_is_none_is_told() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for value in [1_000, 2_000, 2_000, 5_000_000_000] {
            histogram.record(value).unwrap();
        }
        assert_eq!(decode(&encode(&histogram).unwrap()).unwrap().unwrap(), histogram);
        assert_eq!(decode("").unwrap(), None);
        assert!(decode("%%%").unwrap_err().to_string().contains("base64"));
        assert!(decode("aGVsbG8gd29ybGQ=").unwrap_err().to_string().contains("V2"));
    }
}
