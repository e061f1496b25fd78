// Which choices the pieces of a graph take together.
#include "core/search/ways.h"

#include "core/mugraph/text.h"
#include "tests/search/examples.h"

namespace quern {

namespace {

Candidate candidate(bool loop, double us) {
  auto mugraph = parse_mugraph(
      std::string("mugraph m\nin x: f16[16, 64]\nin w: f16[64, 32]\ntensor y: f16[16, 32]\n") +
      (loop ? "kernel grid=[1] loop=4 threads=128 {\n  a = load(x, loop=1)\n  b = load(w, loop=0)\n"
              "  c = matmul(a, b)\n  d = accumulate_sum(c)\n  store(d, y)\n}\nout y\n"
            : "kernel grid=[1] threads=128 {\n  a = load(x)\n  b = load(w)\n  c = matmul(a, b)\n"
              "  store(c, y)\n}\nout y\n"));
  assert_ok(mugraph);
  Candidate out;
  out.mugraph = std::move(*mugraph);
  out.us = us;
  return out;
}

struct Projections {
  Graph graph = graph_of(
      "graph g\nin x: f16[16, 64]\nin w: f16[64, 32]\nin v: f16[64, 48]\na = matmul(x, w)\n"
      "b = matmul(x, v)\nout a, b\n");
  std::vector<Piece> pieces;
  std::vector<OtherPieces> others;
  std::vector<std::vector<Candidate>> candidates;

  Projections() {
    std::vector<ValueId> nodes;
    for (size_t id = 0; id < graph.nodes.size(); ++id)
      if (op_info(graph.nodes[id].code).kind != OpKind::leaf) nodes.push_back(static_cast<ValueId>(id));
    pieces = pieces_of(graph, nodes);
    assert_int_equal(pieces.size(), 2);
  }
  Ways ways() const {
    return Ways(pieces, others, [&](const Piece& piece) {
      std::vector<Choice> out;
      for (const Candidate& each : candidates[static_cast<size_t>(&piece - pieces.data())])
        out.push_back({each.us, &each});
      return out;
    });
  }
};

// First of the piece that is slower by the smaller share.
void the_best_come_first_then_one_change(void**) {
  Projections graph;
  graph.candidates = {{candidate(false, 10), candidate(false, 10.5)},
                      {candidate(false, 5), candidate(false, 5.375)}};
  const Ways all = graph.ways();
  const std::vector<Way> ways = all.by_time();
  assert_true(ways.size() >= 3);
  assert_true(ways[0].slower == 0);
  assert_ptr_equal(ways[0].choices[0].candidate, &graph.candidates[0][0]);
  assert_ptr_equal(ways[0].choices[1].candidate, &graph.candidates[1][0]);
  assert_true(ways[1].slower == 0.5 && ways[1].share == 0.05);
  assert_ptr_equal(ways[1].choices[0].candidate, &graph.candidates[0][1]);
  assert_ptr_equal(ways[1].choices[1].candidate, &graph.candidates[1][0]);
  assert_true(all.with_other_loops().empty());
}

void other_choices_are_of_the_way_that_is_given(void**) {
  Projections graph;
  graph.candidates = {{candidate(false, 10), candidate(false, 12)}, {candidate(false, 5), candidate(false, 6)}};
  const Ways all = graph.ways();
  Way way = all.by_time()[0];
  way.choices[0] = {12, &graph.candidates[0][1]};
  const std::vector<Way> ways = all.with_other_choices(way);
  assert_int_equal(ways.size(), 2);
  assert_true(ways[0].slower == -2);  // back
  assert_ptr_equal(ways[0].choices[0].candidate, &graph.candidates[0][0]);
  assert_ptr_equal(ways[1].choices[0].candidate, &graph.candidates[0][1]);
  assert_ptr_equal(ways[1].choices[1].candidate, &graph.candidates[1][1]);
}

// Whichever loop is the best of each piece.
void readers_of_one_value_have_other_loops_together(void**) {
  Projections graph;
  graph.candidates = {{candidate(false, 10), candidate(false, 11), candidate(true, 14), candidate(true, 15)},
                      {candidate(false, 5), candidate(true, 9)}};
  const std::vector<Way> ways = graph.ways().with_other_loops();
  assert_int_equal(ways.size(), 1);
  assert_ptr_equal(ways[0].choices[0].candidate, &graph.candidates[0][2]);
  assert_ptr_equal(ways[0].choices[1].candidate, &graph.candidates[1][1]);
}

void pieces_as_they_are_written_are_those_with_the_graphs_own_operators(void**) {
  Projections graph;
  graph.candidates = {{candidate(false, 10), candidate(true, 11), candidate(false, 12), candidate(false, 13)},
                      {candidate(false, 5), candidate(true, 9)}};
  assert_false(graph.ways().as_written().has_value());
  graph.candidates[0][0].others = 2;
  graph.candidates[0][1].others = 1;
  const std::optional<Way> way = graph.ways().as_written();
  assert_true(way.has_value());
  assert_ptr_equal(way->choices[0].candidate, &graph.candidates[0][2]);
  assert_ptr_equal(way->choices[1].candidate, &graph.candidates[1][0]);
  assert_true(way->slower == 2);
}

}  // namespace

}  // namespace quern

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(quern::the_best_come_first_then_one_change),
      cmocka_unit_test(quern::other_choices_are_of_the_way_that_is_given),
      cmocka_unit_test(quern::readers_of_one_value_have_other_loops_together),
      cmocka_unit_test(quern::pieces_as_they_are_written_are_those_with_the_graphs_own_operators)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
