//! What a client accepts, by the headers `Accept` and `Accept-Encoding`.

use axum::http::{HeaderMap, HeaderName};

/// The names in a header that the client does not refuse, in its order, each with its weight from above 0 to 1.
pub(crate) fn offers(headers: &HeaderMap, header: HeaderName) -> impl Iterator<Item = (&str, f32)> {
    let values = headers.get_all(header).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let name = parts.next()?;
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        (weight > 0.0).then_some((name, weight))
    })
}
