import dormouse.Authorization;
import dormouse.Dormouse;
import dormouse.Dormouse.NewTable;
import dormouse.ProblemException;
import dormouse.Question;
import dormouse.SigV4;
import java.io.IOException;
import java.math.BigDecimal;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HexFormat;
import java.util.List;

/**
 * Everything that programs do with tables, once: {@code java -cp … Tour TABLE}
 *
 * <p>With DORMOUSE_HTTP_TOKEN, requests have that token; without, they are signed with the AWS
 * credentials of the environment ({@code aws configure export-credentials --format env}).
 */
public final class Tour {
    private static final long SENSOR = 9007199254740993L; // 2^53 + 1, which double does not have

    /** A row: a long, a timestamp in microseconds, a double, a decimal, and bytes. */
    record Reading(long sensor, Instant at, Double value, BigDecimal price, byte[] raw) {}

    record Total(long n, long total) {}

    private final Dormouse mouse;
    private final String table;

    private Tour(Dormouse mouse, String table) {
        this.mouse = mouse;
        this.table = table;
    }

    public static void main(String[] arguments) throws IOException {
        URI api = URI.create(System.getenv("DORMOUSE_HTTP_API"));
        String table = arguments.length > 0 ? arguments[0] : "readings";
        Tour tour = new Tour(new Dormouse(api, authorization()), table);
        tour.create();
        tour.insert();
        tour.upload();
        tour.ask();
        tour.askLater();
    }

    private static Authorization authorization() {
        String token = System.getenv("DORMOUSE_HTTP_TOKEN");
        if (token != null) {
            return Authorization.bearer(token);
        }
        return new SigV4(
                System.getenv("AWS_ACCESS_KEY_ID"),
                System.getenv("AWS_SECRET_ACCESS_KEY"),
                System.getenv("AWS_SESSION_TOKEN"),
                System.getenv("AWS_REGION"),
                Clock.systemUTC());
    }

    private void create() {
        String schema =
                "sensor: long, at: timestamp, value: double?, price: decimal(20,4)?, raw: bytes?";
        mouse.createTable(
                new NewTable(table, schema, List.of("sensor"), List.of("at")), table + "-create");
        boolean isThere = mouse.tables().stream().anyMatch(each -> each.name().equals(table));
        System.out.println("created: " + isThere);
    }

    private void insert() {
        Instant at = Instant.parse("2026-01-05T10:00:00.123456Z");
        BigDecimal price = new BigDecimal("1234567890123456.7891");
        Instant later = at.truncatedTo(ChronoUnit.HOURS).plus(1, ChronoUnit.HOURS);
        List<Reading> rows =
                List.of(
                        new Reading(SENSOR, at, 0.5, price, new byte[] {0, -1}),
                        new Reading(SENSOR, later, null, null, null));
        mouse.insert(table, rows, table + "-monday");
        mouse.follow(mouse.insert(table, rows, table + "-monday")); // which adds nothing
    }

    private void upload() throws IOException {
        StringBuilder csv = new StringBuilder("sensor,at,value,price,raw\n");
        for (int n = 0; n < 25; n++) {
            csv.append(n).append(",2026-01-06 00:00,").append(n / 4.0).append(",,\n");
        }
        Path folder = Files.createTempDirectory("readings");
        Path file = folder.resolve("Tuesday's file (ü) +1.csv");
        try {
            Files.writeString(file, csv);
            String state = mouse.follow(mouse.upload(table, file)).path("state").asText();
            System.out.println("file: " + state);
        } finally {
            Files.deleteIfExists(file);
            Files.delete(folder);
        }
    }

    private void ask() {
        Question byKey = Question.byKeys(List.of(List.of(SENSOR)));
        mouse.query(table, byKey, Reading.class).forEach(Tour::show);

        String statement =
                "SELECT count(*) AS n, sum(sensor)::BIGINT AS total FROM " + table + " WHERE sensor < $1";
        mouse.sql(statement, List.of(10), Total.class)
                .forEach(row -> System.out.println("SQL: " + row.n + " rows, total " + row.total));

        Question pages = Question.all().columns("sensor").pageRows(10);
        System.out.println("pages: " + mouse.query(table, pages, Reading.class).count() + " rows");
    }

    private void askLater() {
        Question question = Question.all().where("value >= 1");
        String location = mouse.queryLater(table, question, table + "-later");
        double sum =
                mouse.result(location, Reading.class).mapToDouble(row -> row.value()).sum();
        System.out.println("later: " + sum);

        long ingested =
                mouse.jobs(table, "ingest", "finished", 1).mapToLong(Dormouse.Job::rows).sum();
        System.out.println("jobs: " + ingested + " rows");

        try {
            mouse.query("nothing", Question.all(), Reading.class).forEach(Tour::show);
        } catch (ProblemException problem) {
            System.out.println("problem: " + problem.status() + " " + problem.detail());
        }
    }

    private static void show(Reading row) {
        String raw = row.raw() == null ? "null" : HexFormat.of().formatHex(row.raw());
        System.out.println(
                "row: %s %s %s %s %s"
                        .formatted(row.sensor(), row.at(), row.value(), row.price(), raw));
    }
}
