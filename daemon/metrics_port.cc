#include "daemon/metrics_port.h"

#include <memory>

namespace quern {

// Closed once, by its end or its time limit; gone when both handles are.
struct MetricsPort::Connection {
  MetricsPort* port;
  uv_tcp_t socket;
  uv_timer_t limit;
  uv_write_t write;
  std::string request, reply;
  char buffer[2048];
  int handles = 2;

  void close() {
    if (uv_is_closing(reinterpret_cast<uv_handle_t*>(&socket))) return;
    port->connections_.erase(this);
    const auto closed = [](uv_handle_t* handle) {
      auto* self = static_cast<Connection*>(handle->data);
      if (--self->handles == 0) delete self;
    };
    uv_close(reinterpret_cast<uv_handle_t*>(&socket), closed);
    uv_close(reinterpret_cast<uv_handle_t*>(&limit), closed);
  }
  void take(const char* bytes, size_t size) {
    request.append(bytes, size);
    const bool whole =
        request.find("\r\n\r\n") != std::string::npos || request.find("\n\n") != std::string::npos;
    if (!whole && request.size() <= kMaxRequestBytes) return;
    uv_read_stop(reinterpret_cast<uv_stream_t*>(&socket));
    reply = port->answer(whole ? request : "");
    uv_buf_t buffer = uv_buf_init(reply.data(), static_cast<unsigned>(reply.size()));
    const auto written = [](uv_write_t* request, int) { static_cast<Connection*>(request->data)->close(); };
    if (uv_write(&write, reinterpret_cast<uv_stream_t*>(&socket), &buffer, 1, written) != 0) close();
  }
};

Status MetricsPort::listen(uint16_t port) {
  uv_tcp_init(loop_, &listening_);
  listening_.data = this;
  open_ = true;
  sockaddr_in address;
  uv_ip4_addr("127.0.0.1", port, &address);
  int code = uv_tcp_bind(&listening_, reinterpret_cast<const sockaddr*>(&address), 0);
  if (code == 0)
    code = uv_listen(reinterpret_cast<uv_stream_t*>(&listening_), kMaxConnections,
                     [](uv_stream_t* stream, int status) {
                       if (status == 0) static_cast<MetricsPort*>(stream->data)->accept();
                     });
  if (code == 0) return {};
  return Status(ErrorCode::IO, "metrics-port: cannot listen on 127.0.0.1:" + std::to_string(port) + ": " +
                                   uv_strerror(code));
}

void MetricsPort::close() {
  if (!open_) return;
  open_ = false;
  for (Connection* connection : std::unordered_set<Connection*>(connections_)) connection->close();
  uv_close(reinterpret_cast<uv_handle_t*>(&listening_), nullptr);
}

void MetricsPort::accept() {
  auto* connection = new Connection{this, {}, {}, {}, {}, {}, {}};
  connections_.insert(connection);
  uv_tcp_init(loop_, &connection->socket);
  uv_timer_init(loop_, &connection->limit);
  connection->socket.data = connection->limit.data = connection->write.data = connection;
  auto* stream = reinterpret_cast<uv_stream_t*>(&connection->socket);
  if (uv_accept(reinterpret_cast<uv_stream_t*>(&listening_), stream) != 0 ||
      connections_.size() > kMaxConnections)
    return connection->close();
  uv_timer_start(
      &connection->limit, [](uv_timer_t* timer) { static_cast<Connection*>(timer->data)->close(); }, kLimitMs,
      0);
  uv_read_start(
      stream,
      [](uv_handle_t* handle, size_t, uv_buf_t* buffer) {
        auto* self = static_cast<Connection*>(handle->data);
        *buffer = uv_buf_init(self->buffer, sizeof self->buffer);
      },
      [](uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer) {
        auto* self = static_cast<Connection*>(stream->data);
        if (size > 0) self->take(buffer->base, static_cast<size_t>(size));
        if (size < 0) self->close();
      });
}

std::string MetricsPort::answer(const std::string& request) const {
  const std::string line = request.substr(0, request.find_first_of("\r\n"));
  const auto reply = [](const char* status, const std::string& text) {
    return std::string("HTTP/1.1 ") + status +
           "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: " +
           std::to_string(text.size()) + "\r\nConnection: close\r\n\r\n" + text;
  };
  if (line.find(" HTTP/1.") == std::string::npos)
    return reply("400 Bad Request", "this is no request of HTTP/1\n");
  if (!line.starts_with("GET ")) return reply("405 Method Not Allowed", "there is only GET /metrics\n");
  if (!line.starts_with("GET /metrics ") && !line.starts_with("GET /metrics?"))
    return reply("404 Not Found", "there is only /metrics\n");
  return reply("200 OK", page_());
}

}  // namespace quern
