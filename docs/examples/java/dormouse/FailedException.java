package dormouse;

/** What was accepted has failed since, or was refused or cancelled. */
public final class FailedException extends RuntimeException {
    FailedException(String location, String state, String reason) {
        super(location + " " + state + ": " + reason);
    }
}
