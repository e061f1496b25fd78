// Cutting graphs into pieces and putting them together.
#include "core/search/pieces.h"

#include <set>

#include "core/graph/text.h"
#include "core/mugraph/tensor_view.h"
#include "core/mugraph/text.h"
#include "core/search/assembly.h"
#include "core/search/search.h"
#include "core/verify/verifier.h"
#include "tests/search/examples.h"
#include "tests/support/random_graph.h"

namespace quern {

namespace {

void every_needed_operator_is_in_one_piece(void**) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = random_graph(seed);
    std::set<ValueId> made(graph.inputs.begin(), graph.inputs.end());
    for (const Piece& piece : cut_into_pieces(graph, 11)) {
      for (ValueId input : piece.inputs) assert_true(made.count(input) == 1);  // pieces can run in this order
      for (ValueId id : piece.nodes) assert_true(made.insert(id).second);
      assert_int_equal(piece.graph.inputs.size(), piece.inputs.size());
      assert_int_equal(piece.graph.outputs.size(), piece.outputs.size());
    }
    for (ValueId output : graph.outputs)
      assert_true(made.count(output) == 1 || graph.node(output).code == OpCode::constant);
  }
}

void library_kernels_compute_the_graph(void**) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Graph graph = random_graph(seed);
    const std::vector<Piece> pieces = cut_into_pieces(graph, 5);
    std::vector<MuGraph> parts;
    for (const Piece& piece : pieces) parts.push_back(as_library_kernels(piece));
    std::vector<const MuGraph*> pointers;
    for (const MuGraph& part : parts) pointers.push_back(&part);
    std::vector<const Piece*> addresses;
    for (const Piece& piece : pieces) addresses.push_back(&piece);
    const Result<MuGraph> whole = assemble(graph, addresses, pointers);
    if (!whole) continue;  // an output that is a constant
    const Certificate certificate = verify(graph, *whole);
    if (certificate.verdict == Verdict::rejected) fail_test(print_graph(graph) + certificate.reason);
    compared += certificate.verdict == Verdict::accepted;
  }
  assert_true(compared > 50);
}

// Two products of what a norm makes, each with a view of it behind: the products are neighbours, the views
// stand where they are read.
void kernels_follow_what_they_wait_for(void**) {
  const auto graph = parse_graph(R"(graph heads
in x: f16[4, 64]
in a: f16[64, 32]
in b: f16[64, 32]
n = rms_norm(x)
p = matmul(n, a)
p2 = reshape(p, shape=[4, 4, 8])
pe = neg(p2)
q = matmul(n, b)
q2 = reshape(q, shape=[4, 4, 8])
r = add(pe, q2)
out r
)");
  assert_ok(graph);
  const std::vector<Piece> pieces = cut_into_pieces(*graph, 1);
  std::vector<MuGraph> parts;
  std::vector<const MuGraph*> pointers;
  std::vector<const Piece*> addresses;
  for (const Piece& piece : pieces) {
    parts.push_back(as_library_kernels(piece));
    addresses.push_back(&piece);
    if (piece.graph.nodes.back().code != OpCode::matmul) continue;
    auto product = parse_mugraph(
        "mugraph product\nin n: f16[4, 64]\nin w: f16[64, 32]\ntensor y: f16[4, 32]\nkernel grid=[2] "
        "threads=128 {\n"
        "  n0 = load(n)\n  w0 = load(w, x=1)\n  nw = matmul(n0, w0)\n  store(nw, y, x=1)\n}\nout y\n");
    assert_ok(product);
    parts.back() = std::move(*product);
  }
  for (const MuGraph& part : parts) pointers.push_back(&part);
  // Cut in this order, too.
  for (size_t at : {1, 2}) assert_true(pieces[at].graph.nodes.back().code == OpCode::matmul);
  const Result<MuGraph> whole = assemble(*graph, addresses, pointers);
  assert_ok(whole);
  std::string order;
  for (const MuKernel& kernel : whole->kernels)
    order += kernel.custom ? "product " : op_info(kernel.code).text + std::string(" ");
  assert_string_equal(order.c_str(), "rms_norm product product reshape reshape neg add ");
  assert_int_equal(static_cast<int>(verify(*graph, *whole).verdict), static_cast<int>(Verdict::accepted));
}

// Ten layers of a norm and a linear map: the minimum-traffic cut is between layers, and every cut is the
// same.
void a_long_chain_is_cut_at_the_narrow_places(void**) {
  std::string text = "graph deep\nin x0: f16[16, 64]\n";
  for (int i = 0; i < 10; ++i)
    text += "in u" + std::to_string(i) + ": f16[64, 1024]\nin d" + std::to_string(i) + ": f16[1024, 64]\n";
  for (int i = 0; i < 10; ++i) {
    const std::string n = std::to_string(i);
    text += "n" + n + " = rms_norm(x" + n + ")\nh" + n + " = matmul(n" + n + ", u" + n + ")\ng" + n +
            " = silu(h" + n + ")\ny" + n + " = matmul(g" + n + ", d" + n + ")\nx" + std::to_string(i + 1) +
            " = add(x" + n + ", y" + n + ")\n";
  }
  const Graph graph = graph_of(text + "out x10\n");
  const std::vector<Piece> pieces = cut_into_pieces(graph, 11);
  assert_true(pieces.size() >= 5 && pieces.size() <= 12);
  for (const Piece& piece : pieces)
    for (ValueId output : piece.outputs) assert_int_equal(graph.node(output).type.shape[1], 64);
}

void softmaxes_count_as_their_definition(void**) {
  std::string text = "graph g\nin x0: f32[8, 16]\n";
  for (int i = 0; i < 4; ++i)
    text += "x" + std::to_string(i + 1) + " = softmax(x" + std::to_string(i) + ")\n";
  for (const Piece& piece : cut_into_pieces(graph_of(text + "out x4\n"), 11))
    assert_true(piece.nodes.size() <= 2);
}

// Scores are larger than all that is read and written, so that more operators stay together around them than the bound; but
// not more products than are searched whole.
void much_stays_inside(void**) {
  const std::string scores =
      "graph g\nin q: bf16[4, 512, 64]\nin k: bf16[4, 64, 512]\nin r: bf16[4, 512, 64]\nin j: bf16[4, 64, "
      "512]\n"
      "in v: bf16[4, 512, 64]\nin z: f32[1]\n"
      "s = matmul(q, k)\nt = matmul(r, j)\na = mul(s, 0.125)\nb = mul(t, 0.125)\nc = softmax(a)\nd = "
      "softmax(b)\n"
      "e = mul(d, z)\nf = sub(c, e)\nh = cast(f, dtype=bf16)\ny = matmul(h, v)\n";
  const std::vector<Piece> one = cut_into_pieces(graph_of(scores + "out y\n"), 11);
  assert_int_equal(one.size(), 1);
  assert_true(one[0].operators > 11 + 3);
  const std::string more =
      "p = transpose(v, perm=[0, 2, 1])\nx = matmul(y, p)\nw = mul(x, h)\no = matmul(w, v)\nout o\n";
  const std::vector<Piece> parted = cut_into_pieces(graph_of(scores + more), 11);
  assert_true(parted.size() > 1);
  for (const Piece& piece : parted)
    if (piece.operators > 11)
      assert_true(std::count_if(piece.graph.nodes.begin(), piece.graph.nodes.end(), [](const Node& node) {
                    return node.code == OpCode::matmul;
                  }) <= kMostProducts);
}

// The backward pass of an activation, f32 inside, in front of two products: what they read is bf16, not what the search could
// still take along with them.
void what_computes_by_elements_may_be_long(void**) {
  std::string text =
      "graph g\nin x: bf16[64, 128]\nin w: bf16[128, 256]\nin y: bf16[64, 256]\n"
      "c0 = cast(y, dtype=f32)\n";
  for (int i = 0; i < 12; ++i)
    text += "c" + std::to_string(i + 1) + " = sigmoid(c" + std::to_string(i) + ")\n";
  text +=
      "d = cast(c12, dtype=bf16)\nxt = transpose(x, perm=[1, 0])\nwt = transpose(w, perm=[1, 0])\n"
      "p = matmul(xt, d)\nq = matmul(d, wt)\nout p, q\n";
  const Graph graph = graph_of(text);
  const std::vector<Piece> pieces = cut_into_pieces(graph, 11);
  const Piece& first = pieces[0];
  assert_true(first.operators > 11 && first.as_written);
  assert_int_equal(first.outputs.size(), 1);
  assert_text_equal(graph.node(first.outputs[0]).name, "d");
  for (size_t i = 1; i < pieces.size(); ++i) assert_false(pieces[i].as_written);
  // Where it is cut smaller it is.
  for (const Piece& piece : cut_smaller(graph, first)) assert_true(piece.nodes.size() < first.nodes.size());
}

// A residual reads with the columns of the result what the product reads with its inner index.
void an_input_in_two_roles_is_two_inputs(void**) {
  const std::vector<Piece> residual = cut_into_pieces(
      graph_of("graph g\nin x: f16[8, 64]\nin w: f16[64, 64]\ny = matmul(x, w)\nz = add(x, y)\nout z\n"), 11);
  assert_int_equal(residual.size(), 1);
  assert_true(residual[0].inputs == (std::vector<ValueId>{0, 1, 0}));
  assert_true(make_terms(residual[0].graph).ok());
  const std::vector<Piece> gram = cut_into_pieces(
      graph_of("graph g\nin x: f16[8, 64]\nin x_2: f16[8, 64]\na = add(x, x_2)\nt = transpose(x)\n"
               "y = matmul(a, t)\nout y\n"),
      11);
  assert_int_equal(gram.size(), 1);
  assert_true(make_terms(gram[0].graph).ok());
  // One role needs one input, however often it is read.
  assert_int_equal(
      cut_into_pieces(graph_of("graph g\nin x: f16[8, 64]\ny = silu(x)\nz = add(x, y)\nout z\n"), 11)[0]
          .inputs.size(),
      1);
}

// Three linear maps of different width after a norm, as attention has them: no grid suits all three.
// A cast that changes no value is no node of a piece: what is handed on is what it casts, and each piece that reads
// it has a cast of its own.
void casts_that_change_no_value_belong_to_who_reads_them(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: bf16[64, 64]\nin w: bf16[64, 64]\nl = matmul(x, w)\nf = cast(l, dtype=f32)\n"
      "p = softmax(f)\nm = max(f, axis=1)\nh = cast(p, dtype=bf16)\nk = cast(h, dtype=f32)\nout h, k, m\n");
  auto id_of = [&](const char* name) {
    for (size_t id = 0; id < graph.nodes.size(); ++id)
      if (graph.nodes[id].name == name) return static_cast<ValueId>(id);
    return ValueId{-1};
  };
  const std::vector<Piece> first = pieces_of(graph, {id_of("l")}),
                           rest =
                               pieces_of(graph, {id_of("f"), id_of("p"), id_of("m"), id_of("h"), id_of("k")});
  assert_int_equal(first.size(), 1);
  assert_true(first[0].outputs == std::vector<ValueId>{id_of("l")});
  // What is asked for is computed by a node.
  assert_int_equal(rest.size(), 2);
  for (const Piece& piece : rest) {
    assert_true(piece.inputs == std::vector<ValueId>{id_of("l")});
    assert_true(std::find(piece.nodes.begin(), piece.nodes.end(), id_of("f")) == piece.nodes.end());
    assert_true(piece.graph.node(1).code == OpCode::cast && piece.graph.node(1).type.dtype == DType::f32);
  }
  assert_true(std::find(rest[0].nodes.begin(), rest[0].nodes.end(), id_of("k")) != rest[0].nodes.end());
}

// A mask goes with what it masks.
void numbered_inputs_are_placed(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f32[8, 16]\ni = iota(shape=[8, 1], axis=0)\nj = iota(shape=[1, 16], axis=1)\n"
      "m = le(j, i)\ny = where(m, x, -1e9)\np = softmax(y)\nz = exp(p)\nout z\n");
  std::string masked;
  for (const Piece& piece : cut_into_pieces(graph, 11)) {
    const bool numbered =
        std::any_of(piece.numbered.begin(), piece.numbered.end(), [](bool is) { return is; });
    if (piece.outside.empty()) assert_true(piece.placed.has_value() == numbered);
    if (piece.outside.empty() && numbered) masked = print_graph(*piece.placed);
  }
  for (const char* part : {"i = iota(", "m = le(j, i)", "y = where(m, x,"}) assert_contains(masked, part);
}

// The programs of a piece are timed with the strides of what it reads, which may be a view that another piece makes.
void views_are_placed(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[64, 256]\nin w: f16[512, 256] const\nin v: f16[512, 256] const\na = transpose(w)\n"
      "b = transpose(v)\ny = matmul(x, a)\nz = matmul(x, b)\ns = silu(y)\no = mul(s, z)\np = "
      "transpose(o)\nout p, a, b\n");
  size_t products = 0;
  for (const Piece& piece : pieces_of(graph, {5, 6})) {  // y and z alone
    assert_true(piece.placed.has_value());
    const std::string placed = print_graph(*piece.placed);
    assert_contains(placed, " = transpose(");
    assert_contains(placed, "in x: f16[64, 256]");
    assert_true(piece.text().find("transpose") != std::string::npos);
    products += piece.nodes.size();
  }
  assert_int_equal(products, 2);
}

// A norm of nine operators in front of two products: what gates them stays with them, and the norm has a piece of its own.
void what_gates_products_stays_with_them(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: bf16[32, 2304]\nin g: bf16[2304]\nin w: bf16[9216, 2304] const\nin v: bf16[9216, 2304] "
      "const\n"
      "in d: bf16[2304, 9216] const\nf = cast(x, dtype=f32)\nq = square(f)\nm = mean(q, axis=1, "
      "keepdims=true)\n"
      "e = add(m, 1e-6)\nr = rsqrt(e)\nn = mul(f, r)\nc = cast(g, dtype=f32)\nk = add(c, 1)\nl = mul(n, k)\n"
      "h = cast(l, dtype=bf16)\nwt = transpose(w)\nu = matmul(h, wt)\na = gelu_tanh(u)\nvt = transpose(v)\n"
      "t = matmul(h, vt)\ni = mul(a, t)\ndt = transpose(d)\ny = matmul(i, dt)\no = add(x, y)\nout o\n");
  auto id_of = [&](const std::string& name) {
    for (size_t id = 0; id < graph.nodes.size(); ++id)
      if (graph.nodes[id].name == name) return static_cast<ValueId>(id);
    return ValueId{-1};
  };
  for (const Piece& piece : cut_into_pieces(graph, 11)) {
    auto has = [&](const char* name) {
      return std::find(piece.nodes.begin(), piece.nodes.end(), id_of(name)) != piece.nodes.end();
    };
    if (has("u") || has("t")) assert_true(has("u") && has("t") && has("i"));
  }
}

void what_fits_no_kernel_is_taken_apart(void**) {
  const std::string norm =
      "graph g\nin x: bf16[16, 2048]\nin g: bf16[2048]\nin wq: bf16[2048, 32768]\n"
      "in wk: bf16[2048, 8192]\nin wv: bf16[2048, 8192]\nn = rms_norm(x, g)\nq = matmul(n, wq)\nk = "
      "matmul(n, "
      "wk)\nv = matmul(n, wv)\n";
  const Graph graph = graph_of(norm + "out q, k, v\n");
  const std::vector<Piece> whole = cut_into_pieces(graph, 11);
  assert_int_equal(whole.size(), 1);
  const std::vector<Piece> parts = one_piece_an_output(graph, whole[0]);
  assert_int_equal(parts.size(), 3);
  for (const Piece& part : parts) assert_int_equal(part.nodes.size(), 2);  // each has the norm
  for (const Piece& part : cut_smaller(graph, whole[0])) assert_true(part.nodes.size() < 4);

  const Result<SearchResult> result = search(graph, **find_target("sm_90a"));
  assert_ok(result);
  assert_true(!result->candidates.empty());
  assert_true(result->report.pieces[0].apart);
  assert_contains(print_report(*result), "it is taken apart");
  for (const Candidate& candidate : result->candidates) {
    for (const MuKernel& kernel : candidate.mugraph.kernels)
      assert_true(kernel.custom || moves_only(kernel.code));
    assert_int_equal(verify(graph, candidate.mugraph).verdict, Verdict::accepted);
  }
  // A product that two outputs need is not computed twice.
  const Graph two = graph_of(
      "graph g\nin x: f16[64, 64]\nin w: f16[64, 64]\ny = matmul(x, w)\n"
      "a = softmax(y, axis=0)\nb = softmax(y, axis=1)\nout a, b\n");
  for (const Piece& piece : cut_into_pieces(two, 11)) assert_true(one_piece_an_output(two, piece).empty());
}

// Operators behind a product may stand behind the next one, in the order of a graph: then they can begin either way. Casts that
// change no value are in no run.
void runs_begin_in_two_ways(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[64, 64]\nin w: f16[64, 64]\nin v: f16[64, 64]\nh = matmul(x, w)\ng = sigmoid(h)\n"
      "p = matmul(g, v)\nf = cast(h, dtype=f32)\ne = exp(f)\nd = cast(p, dtype=f32)\nr = add(d, e)\nout r\n");
  Piece piece;
  for (const char* name : {"h", "g", "p", "e", "r"})
    for (size_t id = 0; id < graph.nodes.size(); ++id)
      if (graph.nodes[id].name == name) piece.nodes.push_back(static_cast<ValueId>(id));
  const auto ways = runs_of(graph, piece);
  std::vector<std::string> texts;
  for (const auto& runs : ways) {
    std::string& text = texts.emplace_back();
    for (const auto& run : runs) {
      for (ValueId id : run) text += graph.node(id).name;
      text += " ";
    }
  }
  assert_int_equal(texts.size(), 2);
  assert_text_equal(texts[0], "hg per ");
  assert_text_equal(texts[1], "hge pr ");
  piece.nodes.resize(3);
  assert_int_equal(runs_of(graph, piece).size(), 1);
}

// What stands between reductions is computed by each that needs it: a variance and what is normed read x, not x - mean.
void each_reduction_computes_what_it_needs(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[4, 4096, 32, 16]\nf = cast(x, dtype=f32)\nm = mean(f, axis=[1, 3], keepdims=true)\n"
      "d = sub(f, m)\nq = square(d)\nv = mean(q, axis=[1, 3], keepdims=true)\ne = add(v, 1e-5)\nr = "
      "rsqrt(e)\n"
      "n = mul(d, r)\ny = cast(n, dtype=f16)\nout y\n");
  const std::vector<Piece> whole = cut_into_pieces(graph, 11);
  assert_int_equal(whole.size(), 1);
  const std::vector<Piece> parts = one_piece_a_reduction(graph, whole[0]);
  const std::vector<std::string> inputs = {"x", "m x", "m v x"}, outputs = {"m", "v", "y"};
  auto names = [&](const std::vector<ValueId>& ids) {
    std::set<std::string> sorted;
    for (ValueId id : ids) sorted.insert(graph.node(id).name);
    std::string text;
    for (const std::string& name : sorted) text += (text.empty() ? "" : " ") + name;
    return text;
  };
  assert_int_equal(parts.size(), 3);
  for (size_t p = 0; p < parts.size(); ++p) {
    assert_text_equal(names(parts[p].outputs), outputs[p]);
    assert_text_equal(names(parts[p].inputs), inputs[p]);
  }
  // A product is not computed twice, and without a reduction there is nothing to part.
  for (const char* rest : {"y = matmul(x, w)\nm = max(y, axis=1, keepdims=true)\nd = sub(y, m)\nout d\n",
                           "y = matmul(x, w)\nd = exp(y)\nout d\n"}) {
    const Graph other = graph_of(std::string("graph g\nin x: f16[64, 64]\nin w: f16[64, 64]\n") + rest);
    for (const Piece& piece : cut_into_pieces(other, 11))
      assert_true(one_piece_a_reduction(other, piece).empty());
  }
}

// The transpose of new values in front of their concatenation with old ones runs before attention, which is one piece.
void what_leads_outside_comes_first(void**) {
  const Graph graph = graph_of(R"(graph cached
in q: f16[8, 33, 64]
in first: f16[8, 100, 64]
in second: f16[8, 33, 64]
in old: f16[8, 100, 64]
in made: f16[33, 512]
k = concat(first, second, axis=1)
heads = reshape(made, shape=[33, 8, 64])
new = transpose(heads, perm=[1, 0, 2])
v = concat(old, new, axis=1)
kt = transpose(k, perm=[0, 2, 1])
s = matmul(q, kt)
t = mul(s, 0.125)
p = softmax(t, axis=-1)
y = matmul(p, v)
out y
)");
  size_t products = 0;
  for (const Piece& piece : cut_into_pieces(graph, 11)) {
    const auto own = std::count_if(piece.nodes.begin(), piece.nodes.end(),
                                   [&](ValueId id) { return graph.node(id).code == OpCode::matmul; });
    assert_true(own == 0 || own == 2);
    products += static_cast<size_t>(own);
  }
  assert_int_equal(products, 2);
}

// Pieces that read one value are in one group, products alone, and groups can run in their order.
void groups_have_values_in_common(void**) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = random_graph(seed);
    std::set<ValueId> made(graph.inputs.begin(), graph.inputs.end());
    std::vector<Piece> pieces = cut_into_pieces(graph, 3);
    const size_t count = pieces.size();
    size_t grouped = 0;
    for (const std::vector<Piece>& group : groups_of(graph, std::move(pieces))) {
      grouped += group.size();
      for (const Piece& piece : group) {
        for (ValueId input : piece.inputs) assert_true(made.count(input) == 1);
        for (ValueId id : piece.nodes) assert_true(made.insert(id).second);
        for (ValueId id : piece.nodes)
          if (op_info(graph.node(id).code).kind == OpKind::contraction) assert_int_equal(group.size(), 1);
      }
    }
    assert_int_equal(grouped, count);
  }
  const auto graph = parse_graph(
      "graph g\nin x: f32[64, 32]\nin y: f32[64, 32]\na = sum(x, axis=0)\nb = sum(y, axis=0)\nc = sum(x, "
      "axis=1)\n"
      "out a, b, c\n");
  assert_ok(graph);
  const std::vector<std::vector<Piece>> groups = groups_of(*graph, cut_into_pieces(*graph, 1));
  assert_int_equal(groups.size(), 2);
  const std::vector<Piece>& both = groups[0].size() == 2 ? groups[0] : groups[1];
  assert_int_equal(both.size(), 2);
  std::vector<ValueId> nodes = both[1].nodes;
  nodes.insert(nodes.end(), both[0].nodes.begin(), both[0].nodes.end());
  const Piece joined = joined_piece(*graph, nodes, 1);
  assert_int_equal(joined.outputs.size(), 2);
  assert_int_equal(joined.inputs.size(), 1);
  assert_true(joined.as_written && !joined_piece(*graph, nodes, 2).as_written);
  assert_true(joined.text() != joined_piece(*graph, nodes, 2).text());
}

// What computes by elements stands beside the product that alone reads it, or makes some of what it reads for it alone; what others
// need, too, stays where it is.
void elements_stand_beside_their_products(void**) {
  const auto graph = parse_graph(R"(graph g
in x: f32[64, 32]
in y: f32[64, 32]
in w: f32[32, 48]
in v: f32[48, 16]
a = exp(x)
c = tanh(y)
p = matmul(a, w)
b = mul(p, p)
q = matmul(b, v)
e = neg(q)
d = sum(c, axis=0)
f = exp(c)
g = matmul(f, w)
h = tanh(g)
out e, d, h, g
)");
  assert_ok(graph);
  const auto grouped = [&](bool behind) {
    std::string text;
    for (const std::vector<Piece>& group : beside_products(*graph, cut_into_pieces(*graph, 1), behind)) {
      for (const Piece& piece : group)
        for (ValueId id : piece.nodes) text += graph->node(id).name;
      text += " ";
    }
    return text;
  };
  assert_text_equal(grouped(false), "cdf g h ap bq e ");
  assert_text_equal(grouped(true), "cdf g a h pb qe ");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_needed_operator_is_in_one_piece),
      cmocka_unit_test(library_kernels_compute_the_graph),
      cmocka_unit_test(kernels_follow_what_they_wait_for),
      cmocka_unit_test(a_long_chain_is_cut_at_the_narrow_places),
      cmocka_unit_test(softmaxes_count_as_their_definition),
      cmocka_unit_test(much_stays_inside),
      cmocka_unit_test(what_computes_by_elements_may_be_long),
      cmocka_unit_test(an_input_in_two_roles_is_two_inputs),
      cmocka_unit_test(casts_that_change_no_value_belong_to_who_reads_them),
      cmocka_unit_test(numbered_inputs_are_placed),
      cmocka_unit_test(views_are_placed),
      cmocka_unit_test(what_gates_products_stays_with_them),
      cmocka_unit_test(what_fits_no_kernel_is_taken_apart),
      cmocka_unit_test(each_reduction_computes_what_it_needs),
      cmocka_unit_test(runs_begin_in_two_ways),
      cmocka_unit_test(what_leads_outside_comes_first),
      cmocka_unit_test(groups_have_values_in_common),
      cmocka_unit_test(elements_stand_beside_their_products),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
