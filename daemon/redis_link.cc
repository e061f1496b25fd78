#include "daemon/redis_link.h"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace quern {

namespace {

constexpr uint64_t kFirstRetryMs = 100, kLastRetryMs = 10000;
constexpr uint64_t kSteadyNs = 5'000'000'000;  // of a connection that is as good as new
constexpr int kOverallLimits = 20;             // for an answer that keeps dripping in
constexpr size_t kMaxElements = 1024;          // of a list

// A list's length is the server's word, and memory for it would be taken at once.
template <class Size>
void* bounded_array(const redisReadTask* task, Size size) {
  const std::unique_ptr<redisReader, void (*)(redisReader*)> standard(redisReaderCreate(), redisReaderFree);
  return static_cast<size_t>(size) > kMaxElements ? nullptr : standard->fn->createArray(task, size);
}

redisReplyObjectFunctions* bounded_replies(const redisReader& reader) {
  static redisReplyObjectFunctions functions = [&] {
    redisReplyObjectFunctions bounded = *reader.fn;
    bounded.createArray = bounded_array;
    return bounded;
  }();
  return &functions;
}

}  // namespace

struct RedisLink::Connection {
  RedisLink* link;  // null as soon as it has let go
  std::unique_ptr<redisReader, void (*)(redisReader*)> reader{redisReaderCreate(), redisReaderFree};
  union {
    uv_handle_t any;
    uv_stream_t stream;
    uv_pipe_t pipe;
    uv_tcp_t tcp;
  } handle;
  uv_connect_t request;
  char buffer[65536];

  explicit Connection(RedisLink* owner) : link(owner) { reader->fn = bounded_replies(*reader); }

  static Connection* of(void* data) { return static_cast<Connection*>(data); }
  static void connected(uv_connect_t* request, int status) {
    Connection& self = *of(request->data);
    if (!self.link) return;
    if (status == 0) status = uv_read_start(&self.handle.stream, room, read);
    RedisLink* const owner = self.link;
    status == 0 ? owner->greet() : owner->lost(uv_strerror(status));
    owner->hooks_.after();
  }
  static void room(uv_handle_t* handle, size_t, uv_buf_t* buffer) {
    *buffer = uv_buf_init(of(handle->data)->buffer, sizeof of(handle->data)->buffer);
  }
  static void read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer) {
    RedisLink* const owner = of(stream->data)->link;
    if (!owner || size == 0) return;
    size > 0 ? owner->take(buffer->base, static_cast<size_t>(size))
             : owner->lost(uv_strerror(static_cast<int>(size)));
    owner->hooks_.after();
  }
  void let_go() {
    link = nullptr;
    uv_close(&handle.any, [](uv_handle_t* closed) { delete of(closed->data); });
  }
};

RedisLink::RedisLink(uv_loop_t* loop, Settings settings, Hooks hooks)
    : loop_(loop), settings_(std::move(settings)), hooks_(std::move(hooks)), retry_ms_(kFirstRetryMs) {}

void RedisLink::start() {
  uv_timer_init(loop_, &retry_);
  uv_timer_init(loop_, &watch_);
  retry_.data = watch_.data = resolve_.data = this;
  open_ = true;
  connect();
}

void RedisLink::close() {
  if (!open_) return;
  open_ = false;
  lost("the daemon exits");
  state_ = State::closed;
  if (resolving_) uv_cancel(reinterpret_cast<uv_req_t*>(&resolve_));
  for (uv_timer_t* timer : {&retry_, &watch_}) uv_close(reinterpret_cast<uv_handle_t*>(timer), nullptr);
}

// ---- connecting ----

void RedisLink::connect() {
  state_ = State::connecting;
  connecting_since_ns_ = uv_hrtime();
  watch();
  if (!settings_.address.starts_with("unix:")) return resolve();
  connection_ = new Connection(this);
  uv_pipe_init(loop_, &connection_->handle.pipe, 0);
  connection_->handle.any.data = connection_->request.data = connection_;
  uv_pipe_connect(&connection_->request, &connection_->handle.pipe, settings_.address.substr(5).c_str(),
                  Connection::connected);
}

void RedisLink::resolve() {
  const size_t colon = settings_.address.rfind(':');
  const std::string host = settings_.address.substr(0, colon), port = settings_.address.substr(colon + 1);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  resolving_ = true;
  const auto resolved = [](uv_getaddrinfo_t* request, int status, addrinfo* found) {
    RedisLink& link = *static_cast<RedisLink*>(request->data);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, uv_freeaddrinfo);
    link.resolving_ = false;
    if (link.state_ != State::connecting) return;
    if (status == 0) {
      Connection* const made = link.connection_ = new Connection(&link);
      uv_tcp_init(link.loop_, &made->handle.tcp);
      uv_tcp_nodelay(&made->handle.tcp, 1);
      made->handle.any.data = made->request.data = made;
      status = uv_tcp_connect(&made->request, &made->handle.tcp, found->ai_addr, Connection::connected);
    }
    if (status != 0) link.lost(uv_strerror(status));
    link.hooks_.after();
  };
  if (const int code = uv_getaddrinfo(loop_, &resolve_, resolved, host.c_str(), port.c_str(), &hints);
      code != 0) {
    resolving_ = false;
    lost(uv_strerror(code));
  }
}

// The connection counts as up when the server has answered. One that never does is not waited for again by
// anybody else.
void RedisLink::greet() {
  const auto refused = [this](const Result<Reply>& reply) {
    if (!reply.ok() && connection_) lost(reply.status().message());
  };
  if (!settings_.password.empty()) {
    std::vector<std::string> words = {"AUTH"};
    if (!settings_.user.empty()) words.push_back(settings_.user);
    words.push_back(settings_.password);
    send(words, refused);
  }
  send({"PING"}, [this, refused](const Result<Reply>& reply) { reply.ok() ? greeted() : refused(reply); });
}

void RedisLink::greeted() {
  state_ = State::up;
  first_ = false;
  up_since_ns_ = uv_hrtime();
  why_.clear();
  hooks_.changed(true, "");
}

void RedisLink::lost(const std::string& why) {
  if (state_ == State::down || state_ == State::closed) return;
  const bool was_steady = state_ == State::up && uv_hrtime() - up_since_ns_ > kSteadyNs;
  state_ = State::down;
  first_ = false;
  why_ = why;
  late_ = false;
  if (was_steady) retry_ms_ = kFirstRetryMs;
  const auto again = [](uv_timer_t* timer) {
    RedisLink& link = *static_cast<RedisLink*>(timer->data);
    if (link.resolving_) return;  // the last name still; the timer repeats
    uv_timer_stop(timer);
    link.connect();
    link.hooks_.after();
  };
  if (open_) uv_timer_start(&retry_, again, retry_ms_, kLastRetryMs);
  retry_ms_ = std::min(retry_ms_ * 2, kLastRetryMs);
  if (connection_) std::exchange(connection_, nullptr)->let_go();
  hooks_.changed(false, why);
  for (Question& question : std::exchange(questions_, {})) question.done(Status(ErrorCode::IO, why));
}

// ---- questions and answers ----

void RedisLink::ask(const std::vector<std::string>& words, Done done) { send(words, std::move(done)); }

void RedisLink::send(const std::vector<std::string>& words, Done done) {
  if (!connection_) return;
  std::vector<const char*> texts;
  std::vector<size_t> sizes;
  for (const std::string& word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  struct Write {
    uv_write_t request;
    char* text;
  };
  auto* write = new Write{{}, nullptr};
  const auto size =
      redisFormatCommandArgv(&write->text, static_cast<int>(words.size()), texts.data(), sizes.data());
  uv_buf_t buffer = uv_buf_init(write->text, static_cast<unsigned>(size));
  write->request.data = write;
  questions_.push_back({std::move(done), uv_hrtime()});
  const auto written = [](uv_write_t* request, int) {  // what fails is seen by reading
    const std::unique_ptr<Write> owned(static_cast<Write*>(request->data));
    redisFreeCommand(owned->text);
  };
  if (uv_write(&write->request, &connection_->handle.stream, &buffer, 1, written) != 0)
    written(&write->request, 0);
  watch();
}

void RedisLink::take(const char* bytes, size_t size) {
  Connection* const from = connection_;
  progress_ns_ = uv_hrtime();
  redisReaderFeed(from->reader.get(), bytes, size);
  while (connection_ == from) {
    void* any = nullptr;
    if (redisReaderGetReply(from->reader.get(), &any) != REDIS_OK) return lost(from->reader->errstr);
    if (!any) break;
    const std::unique_ptr<void, void (*)(void*)> reply(any, freeReplyObject);
    if (questions_.empty()) return lost("it answers what nobody asked");
    answered(*static_cast<const redisReply*>(any));
  }
  if (connection_ == from && from->reader->len - from->reader->pos > settings_.max_answer_bytes)
    lost("an answer has more than " + std::to_string(settings_.max_answer_bytes) + " bytes");
}

void RedisLink::answered(const redisReply& reply) {
  const Done done = std::move(questions_.front().done);
  questions_.pop_front();
  if (reply.type == REDIS_REPLY_ERROR)
    return done(Status(ErrorCode::IO, "the server says: " + std::string(reply.str, reply.len)));
  Reply answer;
  if (reply.str) answer.text.assign(reply.str, reply.len);
  if (reply.type == REDIS_REPLY_INTEGER) answer.number = reply.integer;
  for (size_t i = 0; reply.type == REDIS_REPLY_ARRAY && i < reply.elements; ++i)
    answer.numbers.push_back(reply.element[i]->type == REDIS_REPLY_INTEGER ? reply.element[i]->integer : 0);
  done(std::move(answer));
}

void RedisLink::watch() {
  if (uv_is_active(reinterpret_cast<uv_handle_t*>(&watch_))) return;
  const uint64_t every_ms = std::max<uint64_t>(settings_.limit_ms / 4, 5);
  uv_timer_start(
      &watch_,
      [](uv_timer_t* any) {
        static_cast<RedisLink*>(any->data)->look();
        static_cast<RedisLink*>(any->data)->hooks_.after();
      },
      every_ms, every_ms);
}

// Whoever is late at two looks in a row: after the first one what lay in the socket is read.
void RedisLink::look() {
  if (questions_.empty() && state_ != State::connecting) {
    uv_timer_stop(&watch_);
    late_ = false;
    return;
  }
  const uint64_t now = uv_hrtime(), limit = settings_.limit_ms * 1'000'000;
  const uint64_t first = questions_.empty() ? connecting_since_ns_ : questions_.front().asked_ns;
  const bool late =
      now - std::max(first, std::min(progress_ns_, now)) > limit || now - first > kOverallLimits * limit;
  if (late && late_) return lost("no answer within " + std::to_string(settings_.limit_ms) + " ms");
  late_ = late;
}

}  // namespace quern
