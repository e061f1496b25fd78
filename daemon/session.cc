#include "daemon/session.h"

#include <memory>

#include "capi/wire/messages.h"

namespace quern {

namespace {

struct Write {
  uv_write_t request;
  std::string bytes;
};

Session& session_of(void* handle) { return *static_cast<Session*>(static_cast<uv_handle_t*>(handle)->data); }

// libuv reads into it and hands it over before it reads again, and there is one thread: one buffer serves all
// sessions.
char read_buffer[1 << 16];

}  // namespace

Session::Session(uv_loop_t* loop, uint64_t id, size_t max_output_bytes, const Hooks* hooks)
    : id_(id), max_output_bytes_(max_output_bytes), hooks_(hooks) {
  uv_pipe_init(loop, &pipe_, 0);
  pipe_.data = this;
}

Status Session::accept(uv_stream_t* listener) {
  const int code = uv_accept(listener, reinterpret_cast<uv_stream_t*>(&pipe_));
  return code == 0 ? Status() : Status(ErrorCode::IO, std::string("accept: ") + uv_strerror(code));
}

Status Session::start() {
  const int code = uv_read_start(reinterpret_cast<uv_stream_t*>(&pipe_), on_alloc, on_read);
  return code == 0 ? Status() : Status(ErrorCode::IO, std::string("read: ") + uv_strerror(code));
}

int Session::fd() const {
  uv_os_fd_t fd = -1;
  uv_fileno(reinterpret_cast<const uv_handle_t*>(&pipe_), &fd);
  return fd;
}

bool Session::has_output() const {
  return !closing_ && uv_stream_get_write_queue_size(reinterpret_cast<const uv_stream_t*>(&pipe_)) > 0;
}

void Session::on_alloc(uv_handle_t*, size_t, uv_buf_t* buffer) {
  *buffer = uv_buf_init(read_buffer, sizeof read_buffer);
}

void Session::on_read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer) {
  Session& session = session_of(stream);
  if (size < 0) return session.close(size == UV_EOF ? "left" : uv_strerror(static_cast<int>(size)));
  session.read({buffer->base, static_cast<size_t>(size)});
}

void Session::read(std::string_view bytes) {
  if (refused_) return;
  reader_.append(bytes);
  while (!closing_ && !refused_) {
    auto frame = reader_.next();
    if (!frame) return refuse(frame.status());
    if (!*frame) return;
    hooks_->frame(*this, **frame);
  }
}

void Session::send(std::string bytes) {
  if (closing_ || refused_) return;
  auto* stream = reinterpret_cast<uv_stream_t*>(&pipe_);
  const size_t queued = uv_stream_get_write_queue_size(stream);
  if (queued > max_output_bytes_)
    return close("left " + std::to_string(queued) + " bytes of answers unread", true);
  write(std::move(bytes));
}

void Session::write(std::string bytes) {
  auto* stream = reinterpret_cast<uv_stream_t*>(&pipe_);
  auto write = std::make_unique<Write>();
  write->bytes = std::move(bytes);
  write->request.data = write.get();
  uv_buf_t buffer = uv_buf_init(write->bytes.data(), static_cast<unsigned>(write->bytes.size()));
  // libuv writes at once what the socket takes, and calls back later in any case.
  const int code = uv_write(&write->request, stream, &buffer, 1,
                            [](uv_write_t* request, int) { delete static_cast<Write*>(request->data); });
  if (code != 0) return close(uv_strerror(code));
  static_cast<void>(write.release());
}

void Session::refuse(const Status& status) {
  if (closing_ || refused_) return;
  write(wire::encode(0, wire::to_error(status)));
  refused_ = true;
  // What is queued goes out first; then the end of the stream tells the client, which closes its side or is
  // closed by the server's clock.
  auto* request = new uv_shutdown_t;
  const int code = uv_shutdown(request, reinterpret_cast<uv_stream_t*>(&pipe_),
                               [](uv_shutdown_t* request, int) { delete request; });
  if (code == 0) return;
  delete request;
  close(uv_strerror(code));
}

void Session::close(const std::string& why, bool client_fault) {
  if (closing_) return;
  closing_ = true;
  hooks_->closing(*this, why, client_fault);
  uv_close(reinterpret_cast<uv_handle_t*>(&pipe_), [](uv_handle_t* handle) {
    Session& session = session_of(handle);
    session.hooks_->closed(session);
  });
}

}  // namespace quern
