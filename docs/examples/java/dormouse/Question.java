package dormouse;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.List;

/**
 * Which rows of a table are wanted. What is null is not asked for: without keys, all rows are.
 *
 * @param keys whole keys, or their first parts
 * @param where a condition in SQL
 * @param after the {@code next} of the page before
 */
@JsonInclude(JsonInclude.Include.NON_NULL)
public record Question(
        List<List<Object>> keys, String where, List<String> columns, Integer pageRows, String after) {

    public static Question all() {
        return new Question(null, null, null, null, null);
    }

    public static Question byKeys(List<List<Object>> keys) {
        return new Question(keys, null, null, null, null);
    }

    public Question where(String condition) {
        return new Question(keys, condition, columns, pageRows, after);
    }

    public Question columns(String... names) {
        return new Question(keys, where, List.of(names), pageRows, after);
    }

    public Question pageRows(int rows) {
        return new Question(keys, where, columns, rows, after);
    }

    Question after(String next) {
        return new Question(keys, where, columns, pageRows, next);
    }
}
