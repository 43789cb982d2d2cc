//! Health and reflection: what a service says of itself to programs that do not know it.

use std::sync::Arc;

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::world::{Kept, Service, endpoint};

const NAME: &str = "gpuvitals.history.v1.History";

#[tokio::test]
async fn the_service_says_what_it_is_and_that_it_serves() {
    let kept = Kept::new();
    let service = Service::new(Arc::new(kept.store.clone())).await;
    let channel = endpoint(service.address).connect().await.unwrap();
    let request = HealthCheckRequest { service: NAME.to_owned() };
    let health = HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let mut answers =
        reflection.server_reflection_info(futures_util::stream::iter([ask])).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list of services")
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&NAME), "{names:?}");
    drop((reflection, answers));
    service.end().await;
}
