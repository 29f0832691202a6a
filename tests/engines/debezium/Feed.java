import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.zonky.test.db.postgres.embedded.EmbeddedPostgres;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Writes the messages of Debezium on a PostgreSQL of its own: for each form and topic a file of
 * lines, `plain.public.mice.jsonl`. A folder has what to do: before.sql, which is in the snapshot,
 * and after.sql, whose parts are executed one by one: each begins with a line `-- 1` or `-- 2`,
 * which says in which of two connections. For each file NAME.query.sql there, NAME.rows.jsonl has
 * the rows at the end.
 */
class Feed {
    static final long SECONDS = 120;

    record Form(String name, Map<String, String> settings) {}

    static final List<Form> FORMS = List.of(
        new Form("described", Map.of("converter.schemas.enable", "true")),
        new Form("plain", Map.of("converter.schemas.enable", "false")),
        new Form("flattened", Map.of(
            "converter.schemas.enable", "true",
            "transforms", "unwrap",
            "transforms.unwrap.type", "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.delete.tombstone.handling.mode", "rewrite",
            "transforms.unwrap.add.fields", "op,source.sequence")));

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        try (EmbeddedPostgres postgres = EmbeddedPostgres.builder()
                .setServerConfig("wal_level", "logical").start();
             Statement statement = connect(postgres);
             Statement second = connect(postgres)) {
            statement.execute(Files.readString(folder.resolve("before.sql")));
            statement.execute("CREATE TABLE marks (id int PRIMARY KEY)");
            statement.execute("CREATE PUBLICATION changes FOR ALL TABLES");
            List<Engine> engines = new ArrayList<>();
            for (Form form : FORMS) {
                engines.add(new Engine(form, folder, postgres.getPort()));
            }
            for (Engine engine : engines) {
                engine.awaitStream(statement);
            }
            for (String part : Files.readString(folder.resolve("after.sql")).split("(?m)^-- ")) {
                (part.startsWith("2") ? second : statement).execute(part.replaceFirst(".*", ""));
            }
            statement.execute("INSERT INTO marks VALUES (-1)");
            for (Engine engine : engines) {
                engine.end();
            }
            writeRows(folder, statement);
        }
        System.exit(0);
    }

    static Statement connect(EmbeddedPostgres postgres) throws Exception {
        return postgres.getPostgresDatabase().getConnection().createStatement();
    }

    static void writeRows(Path folder, Statement statement) throws Exception {
        try (var queries = Files.newDirectoryStream(folder, "*.query.sql")) {
            for (Path query : queries) {
                String name = query.getFileName().toString().replace(".query.sql", ".rows.jsonl");
                try (ResultSet rows = statement.executeQuery(Files.readString(query));
                     PrintWriter file = new PrintWriter(folder.resolve(name).toFile())) {
                    while (rows.next()) {
                        file.println(rows.getString(1));
                    }
                }
            }
        }
    }

    static class Engine {
        final CountDownLatch streams = new CountDownLatch(1);
        final CountDownLatch isComplete = new CountDownLatch(1);
        final String name;
        final Path folder;
        final Map<String, PrintWriter> files = new HashMap<>();
        final DebeziumEngine<ChangeEvent<String, String>> engine;

        Engine(Form form, Path folder, int port) {
            this.name = form.name();
            this.folder = folder;
            Properties settings = new Properties();
            settings.putAll(form.settings());
            settings.putAll(Map.of(
                "name", name,
                "topic.prefix", name,
                "slot.name", name,
                "connector.class", "io.debezium.connector.postgresql.PostgresConnector",
                "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
                "plugin.name", "pgoutput",
                "publication.name", "changes",
                "skipped.operations", "none",
                "signal.data.collection", "public.signals",
                "provide.transaction.metadata", "true"));
            settings.putAll(Map.of(
                "database.hostname", "localhost",
                "database.port", "" + port,
                "database.user", "postgres",
                "database.password", "postgres",
                "database.dbname", "postgres"));
            engine = DebeziumEngine.create(Json.class).using(settings).notifying(this::take)
                .using((isSuccess, message, error) -> {
                    if (!isSuccess) {
                        System.err.println(name + ": " + message);
                        System.exit(1);
                    }
                }).build();
            Thread thread = new Thread(engine, name);
            thread.setDaemon(true);
            thread.start();
        }

        void take(ChangeEvent<String, String> event) {
            String value = "" + event.value();
            if (!event.destination().endsWith(".marks")) {
                files.computeIfAbsent(event.destination(), this::open).println(value);
            } else if (value.contains("\"id\":-1")) {
                isComplete.countDown();
            } else if (value.contains("op\":\"c\"")) {
                streams.countDown();
            }
        }

        PrintWriter open(String topic) {
            try {
                return new PrintWriter(folder.resolve(topic + ".jsonl").toFile());
            } catch (java.io.FileNotFoundException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        /** Wait until the log is read: what is changed from then on is not in the snapshot. */
        void awaitStream(Statement statement) throws Exception {
            for (long n = 0; n < SECONDS * 5 && streams.getCount() > 0; n++) {
                statement.execute("INSERT INTO marks SELECT coalesce(max(id), 0) + 1 FROM marks");
                streams.await(200, TimeUnit.MILLISECONDS);
            }
        }

        void end() throws Exception {
            if (!isComplete.await(SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException(name + " did not deliver the last change");
            }
            engine.close();
            files.values().forEach(PrintWriter::close);
        }
    }
}
