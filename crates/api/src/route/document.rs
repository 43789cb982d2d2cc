//! The OpenAPI document, generated from the handlers and the types they answer with.

use utoipa::OpenApi;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{InfoBuilder, License, RefOr, Schema};

use super::{Document, prom};
use crate::config::Limits;

/// The document as JSON.
///
/// # Errors
/// When it cannot be written, which would be a defect.
pub fn json() -> Result<String, serde_json::Error> {
    document().to_pretty_json().map(|text| text + "\n")
}

/// The document as YAML, as it is kept in `api/openapi.yaml`.
///
/// # Errors
/// When it cannot be written, which would be a defect.
pub fn yaml() -> Result<String, YamlError> {
    let text = document().to_yaml().map_err(|error| YamlError(error.to_string()))?;
    Ok(format!("{HEAD}{text}"))
}

/// The document could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the OpenAPI document: {0}")]
pub struct YamlError(String);

const HEAD: &str =
    "# Generated from crates/api by its test: `UPDATE=1 cargo test -p gpuvitals-api --test it document`.\n";

/// How the names of bodies of requests begin.
const ASKED: &str = "New";

fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    document.info = InfoBuilder::new()
        .title("gpuvitals")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(description()))
        .license(Some(License::builder().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    for path in prom::FORMS {
        if let Some(item) = document.paths.paths.get_mut(path) {
            item.post = item.get.clone().map(|mut operation| {
                operation.operation_id = operation.operation_id.map(|id| id + "_form");
                operation.description =
                    Some("As by GET; the parameters may stand in a form in the body, too.".to_owned());
                operation
            });
        }
    }
    let schemas = document.components.iter_mut().flat_map(|components| &mut components.schemas);
    // What is asked for may lack what it does not say.
    let answers = schemas.filter(|(name, _)| !name.starts_with(ASKED));
    answers.for_each(|(_, schema)| require_what_may_be_null(schema));
    document
}

/// A field that may be null is in every answer: fields that may be missing are declared as never null.
fn require_what_may_be_null(schema: &mut RefOr<Schema>) {
    let object = match schema {
        RefOr::T(Schema::Object(object)) => object,
        // Fields of several types in one answer.
        RefOr::T(Schema::AllOf(all)) => return all.items.iter_mut().for_each(require_what_may_be_null),
        _ => return,
    };
    let may_be_null = |schema: &RefOr<Schema>| {
        match schema {
        RefOr::T(Schema::Object(object)) => matches!(&object.schema_type, SchemaType::Array(types) if types.contains(&Type::Null)),
        RefOr::T(Schema::Array(array)) => matches!(&array.schema_type, SchemaType::Array(types) if types.contains(&Type::Null)),
        RefOr::T(Schema::OneOf(choice)) => choice.items.iter().any(|item| {
            matches!(item, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
        }),
        _ => false,
    }
    };
    let all: Vec<String> = object.properties.keys().cloned().collect();
    let required = all.into_iter().filter(|name| {
        object.required.contains(name) || object.properties.get(name).is_some_and(may_be_null)
    });
    object.required = required.collect();
}

fn description() -> String {
    let Limits {
        page, page_max, steps_max, values_max, metrics_max, reuse, request_timeout, streams, ..
    } = Limits::default();
    format!(
        "Telemetry of GPUs: which there are, how they do, what was read from them, live and over time.\n\n\
         **Values** stand in the unit of their column (`power_w` is in watts); `GET /api/v1/metrics` explains every \
         column. What was not read is absent or `null`, never 0. Data that was made up by the simulation says \
         `simulated`.\n\n\
         **Lists** have `limit` ({page} unless given, at most {page_max}) and `offset`, and answer with `total` and \
         `pagination`.\n\n\
         **Errors** are `{{error, message, code}}` everywhere but below `/api/v1/prom`, where they are Prometheus'; `code` is one \
         of the list `ErrorCode`, and `message` names the parameter and what is allowed.\n\n\
         **Partial answers**: what could not be read is named in the header `x-partial`, in `partial` of those answers \
         that have it, and first on a live stream; the rest of the answer stands. A name that may be in it is refused \
         with `incomplete`, not called unknown. A CSV that is not whole, or is one page of several, ends with a line that \
         says so behind `# `; in Arrow the metadata of the schema does, as `lacks`, `next` and `partial`.\n\n\
         **Limits**: a query has at most {metrics_max} metrics, {steps_max} steps and {values_max} values (steps × \
         series); {streams} live streams may be open; a request may take {} s. \
         These are defaults; the section `api` of the settings changes them. What is refused says what to change.\n\n\
         **Freshness**: an answer is given again until what it shows changes, and for {} ms although newer rows have \
         come; the header `x-cache` says `hit` or `miss`. An answer has an `etag`: who sends it as `if-none-match` gets 304 while \
         it is the same. Every path also answers HEAD, and JSON is compressed with zstd or gzip for those who accept it.",
        request_timeout.as_secs(),
        reuse.as_millis(),
    )
}
