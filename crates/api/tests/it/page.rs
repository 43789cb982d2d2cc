//! The web page.

use gpuvitals_api::Page;

use crate::client::request;
use crate::world::World;

async fn world() -> World {
    let page = Page::of([
        ("index.html", b"<!doctype html><title>the page</title>".as_slice()),
        ("favicon.svg", b"<svg/>"),
        ("assets/index-BdZ12.js", b"console.log(1)"),
    ]);
    World::empty(|api, _| api.page = page).await
}

#[tokio::test]
async fn without_a_page_it_says_how_to_build_one() {
    let world = World::new().await;
    let answer = world.get("/").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(answer.text().contains("make build"));
    let other = world.get("/gpus/GPU-a").await;
    assert_eq!((other.status, other.json()["code"].as_str()), (404, Some("not_found")));
}

#[tokio::test]
async fn every_address_of_the_page_is_the_page() {
    let world = world().await;
    for path in [
        "/",
        "/?host=n1",
        "/index.html",
        "/gpus",
        "/gpus/",
        "/gpus/GPU-1/",
        "/gpus/0000:0c:00.0%40node.example",
        "/gpus/a%2Fb?range=6h",
        "/clusters",
        "/clusters/?view=processes",
        "/clusters/east/node-07.example",
        "/compare?gpus=a,b",
        "/hosts?sort=-gpus",
        "/jobs",
        "/statistics",
        "/statistics/",
    ] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.text().contains("the page"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"), "{path}");
        assert!(answer.header("content-security-policy").unwrap().contains("script-src 'self'"), "{path}");
    }
}

#[tokio::test]
async fn a_path_that_nothing_stands_at_is_not_the_page() {
    let world = world().await;
    for path in [
        "/nope",
        "/healthy",
        "/stats/",
        "/statisticsx",
        "/gpus/a/b",
        "/clusters/east",
        "/clusters//a",
        "/clusters/a/b/c",
        "/a/b/c?x=y",
        "/docsx",
        "/index.htm",
    ] {
        let answer = world.get(path).await;
        let code = (answer.status == 404).then(|| answer.json()["code"].clone());
        assert_eq!(code, Some("not_found".into()), "{path}");
    }
}

#[tokio::test]
async fn a_browser_gets_the_page_there_too_which_says_what_there_is() {
    let world = world().await;
    let asked = "accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nif-none-match: *\r\n";
    let answer = request(world.address, "GET", "/gpuz", asked).await;
    assert_eq!((answer.status, answer.header("cache-control")), (404, Some("no-cache")));
    assert!(answer.text().contains("the page"));
    assert!(answer.header("vary").is_some_and(|vary| vary.contains("accept")), "a program gets JSON there");
    assert!(answer.header("content-security-policy").unwrap().contains("script-src 'self'"));
    let api = request(world.address, "GET", "/api/v1/gpuz", asked).await;
    assert_eq!((api.status, api.json()["code"].as_str()), (404, Some("not_found")));
}

#[tokio::test]
async fn files_have_their_type_and_time() {
    let world = world().await;
    let hashed = world.get("/assets/index-BdZ12.js").await;
    assert_eq!(hashed.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(hashed.header("cache-control"), Some("public, max-age=31536000, immutable"));
    let icon = world.get("/favicon.svg").await;
    assert_eq!((icon.header("content-type"), icon.text()), (Some("image/svg+xml"), "<svg/>"));
    let packed = request(world.address, "GET", "/favicon.svg", "accept-encoding: gzip\r\n").await;
    assert_eq!((packed.header("content-encoding"), packed.unpacked()), (Some("gzip"), b"<svg/>".to_vec()));
    let tag = icon.header("etag").unwrap();
    let same =
        request(world.address, "GET", "/favicon.svg", &format!("if-none-match: W/\"x\", {tag}\r\n")).await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    let missing = world.get("/assets/index-old.js").await;
    assert_eq!((missing.status, missing.json()["code"].as_str()), (404, Some("not_found")));
}

#[tokio::test]
async fn no_path_leads_out_of_the_page() {
    let world = world().await;
    for path in [
        "/../Cargo.toml",
        "/assets/../../Cargo.toml",
        "/assets/..%2f..%2fCargo.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/docs/../../etc/passwd",
        "/docs/..%2f..%2fetc%2fpasswd",
        "/assets/%00",
    ] {
        let answer = world.get(path).await;
        assert!(answer.status == 404 || answer.text().contains("the page"), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn the_page_that_was_built_is_whole() {
    let world = World::empty(|api, _| api.page = Page::embedded()).await;
    let answer = world.get("/").await;
    assert_eq!(answer.status, 200);
    // With a page, every file it names is in the program; without one it says so.
    let files: Vec<&str> = answer.text().split('"').filter(|text| text.starts_with("/assets/")).collect();
    assert!(!files.is_empty() || answer.text().contains("make build"));
    for path in files {
        assert_eq!(world.get(path).await.status, 200, "{path}");
    }
}
