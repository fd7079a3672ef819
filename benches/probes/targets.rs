//! The targets: HTTP servers that do as little as one can.

use std::{
    io::{BufRead, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

static HALF_IS_DEAD: AtomicBool = AtomicBool::new(false);

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// Serves on `ports` ports until stdin ends; a line of it kills every other one.
pub(crate) async fn serve(ports: usize) {
    let mut addresses = Vec::new();
    for port in 0..ports {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap().to_string());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, !port.is_multiple_of(2)));
            }
        });
    }
    println!("{}", addresses.join(" "));
    std::io::stdout().flush().unwrap();
    let orders = tokio::task::spawn_blocking(|| {
        for _ in std::io::stdin().lock().lines() {
            HALF_IS_DEAD.store(true, Ordering::Relaxed);
        }
    });
    orders.await.unwrap();
}

async fn answer(mut stream: TcpStream, mortal: bool) {
    let mut request = [0; 2048];
    // Requests are shorter than that, and what goes wrong is seen by the server.
    let _ = stream.read(&mut request).await;
    if mortal && HALF_IS_DEAD.load(Ordering::Relaxed) {
        // Until the other side gives up.
        let _ = stream.read(&mut request).await;
        return;
    }
    let _ = stream.write_all(ANSWER).await;
}
